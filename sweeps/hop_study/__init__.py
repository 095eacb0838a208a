"""Typed hops as a command has them: from a spec or flags to tables, charts and a file."""
