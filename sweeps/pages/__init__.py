"""Pages that hold what they show: one HTML file each, without a server."""
