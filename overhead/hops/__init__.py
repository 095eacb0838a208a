"""Latency and energy over typed hops: paths of any number of link types, strategies over them."""

from overhead.hops import forms, quantities
from overhead.hops.paths import SWITCHING, HopMatrix, LevelHops, message_energy, message_time
from overhead.hops.strategies import Hops, Links, Traffic, messages, ring_all_reduce

__all__ = [
    "SWITCHING",
    "HopMatrix",
    "Hops",
    "LevelHops",
    "Links",
    "Traffic",
    "forms",
    "message_energy",
    "message_time",
    "messages",
    "quantities",
    "ring_all_reduce",
]
