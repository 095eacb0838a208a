"""Text to axes: units, ranges, machines, sweeps."""
