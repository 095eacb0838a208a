"""Overlap of computation and communication: closed forms by mechanism, and what follows from them.

The label ``mechanism`` chooses the form that gives ``overlapped_time``; `MECHANISMS` lists them.
Each form has equal parts, and is compared with a step simulation of its own
(tests/simulator/overlap.py).
"""
