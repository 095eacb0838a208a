"""``python -m sweeps``."""

from sweeps.cli import main

main()
