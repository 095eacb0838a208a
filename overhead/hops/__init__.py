"""Latency and energy over typed hops: paths of any number of link types, strategies over them."""
