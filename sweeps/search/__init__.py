"""Parallel plans: enumerated, ranked, explained."""
