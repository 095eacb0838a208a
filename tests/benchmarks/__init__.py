"""Benchmarks: run by `pytest tests/benchmarks -s`, not with the tests."""
