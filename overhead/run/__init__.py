"""A whole run: what interrupts it, what it costs."""
