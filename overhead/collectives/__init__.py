"""Collective operations on networks: closed forms of every algorithm, and their lower bounds."""
