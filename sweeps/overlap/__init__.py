"""Overlap of computation and communication as a command has it: from flags to report and file."""
