"""Pipeline schedules: time, bubble, exposed transfers, micro-batches in flight, uneven ends.

A pipeline's time is the time for which its devices compute, its bubble, and what transfers add
that nothing hides.  Each form is compared with an event simulation of its schedule
(tests/simulator/pipeline.py); what isn't exact says by how much.
"""
