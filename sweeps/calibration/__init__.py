"""A library's constants fitted to measured collectives, verdicts on them, and what is normal."""
