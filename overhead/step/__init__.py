"""A training step: what its parts take together, its rates, its energy and cost, its error."""
