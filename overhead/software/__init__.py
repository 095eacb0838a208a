"""What a library adds to links: constants, and the forms that price an exact algorithm with them.

The label ``library`` says whose constants hold (``nccl``, ``rccl``, ``xla``); without it the
exact forms hold alone.  An algorithm's label ``form`` says how it is priced; what has no form of
its own is priced by its schedule, so that new networks and algorithms are priced, too.
"""
