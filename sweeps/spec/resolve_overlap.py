"""What a sweep of computation and communication at once doesn't say: figures and defaults."""

from __future__ import annotations

from overhead.completion import SM_LAWS, following
from overhead.labels import LABELS
from overhead.overlap.mechanisms import ASSUMED, HEEDED, MECHANISMS
from sweeps.origin import Origin, assumed
from sweeps.spec.machine import Machine
from sweeps.spec.resolve_operation import Resolved, Resolver, figure_of

# Overlap asked for by itself: a machine's figures, and what they are there.
OF_MACHINE = {
    "memory_bandwidth": "memory_bandwidth",
    "peak_measured_matmul_flops": "peak_measured_matmul_flops_bf16",
    "latency": "intra_latency",
    "bandwidth": "intra_bandwidth",
    "sms": "sms",
}
# What is computed at a machine's rates.
RATED = {"hardware", "matmul_m", *SM_LAWS}


class OverlapResolver(Resolver):
    """Fills in what a sweep of computation and communication at once doesn't say."""

    def run(self) -> Resolved:
        """Return the sweep with all that follows."""
        chosen: list[str] = []
        for name in ("mechanism", *HEEDED):
            if HEEDED.get(name, "") in ("", *chosen):
                self._assume(name, LABELS[name].default)
            if name == "mechanism":
                chosen = [option for option in MECHANISMS if option in self._values(name)]
        if RATED & self.given:
            self._machines()
        for way, more in ASSUMED.items():
            if any(way in following({"mechanism": m}, self.sweep.given).items() for m in chosen):
                for name, (default, why) in more.items():
                    self.take(name, assumed(default, why))
        for mechanism in chosen:
            for name, default in MECHANISMS[mechanism].defaults.items():
                if name not in self.given:
                    self.origins[name] = (assumed(default),)
        return self.resolved()

    def _figures(self) -> tuple[str, ...]:
        return tuple(OF_MACHINE)

    def _figure(self, machine: Machine, name: str) -> Origin:
        return figure_of(machine, OF_MACHINE[name]).of(machine.name)
