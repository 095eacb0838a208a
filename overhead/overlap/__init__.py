"""Overlap of computation and communication: closed forms by mechanism, and what follows from them.

The label ``mechanism`` chooses the form that gives ``overlapped_time``; `MECHANISMS` lists them.
Each form with equal parts is a formula; `bucketed_time`, `prefetched_time`,
`sharded_backward_time` and `layered_time` take unequal ones.  All are compared with step
simulations of their own (tests/simulator/overlap.py).
"""
