"""Tests of sweeps in blocks: same bits, killed, failing, damaged, on several processes."""
