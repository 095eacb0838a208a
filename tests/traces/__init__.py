"""Tests of profiler traces."""
