"""A parallel plan: its degrees, where its groups lie, and when it can be."""
