"""Communication of a training step: every operation of every dimension, and what it adds up to.

`OPERATIONS` lists the operations, `DIMENSIONS` what they are for.  An operation's quantities begin
with its name (`PARTS`), a dimension's with the dimension's (`TOTALS`).  Times are those of the
group's collective where the plan places it, without any overlap; the model of a step decides what
of it hides.
"""
