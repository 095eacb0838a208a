"""The publications that formulas cite."""

from __future__ import annotations

from dataclasses import dataclass

from overhead.quantity import VOCABULARY


@dataclass(frozen=True, slots=True)
class Source:
    """A publication.

    Attributes
    ----------
    key : str
        The short name by which a formula names it.
    citation : str
        Authors, title, venue, year.
    locator : str
        DOI, arXiv number or repository; empty where there is none.
    """

    key: str
    citation: str
    locator: str = ""

    def at(self, where: str = "") -> str:
        """Return the citation with a place in it."""
        return ", ".join(part for part in (self.citation, where, self.locator) if part)


class Sources(dict[str, Source]):
    """Publications by key; one that isn't there loads what isn't loaded yet."""

    def __missing__(self, key: str) -> Source:
        VOCABULARY.load_everything()
        if key not in self:
            raise KeyError(key)
        return self[key]


SOURCES = Sources()


def cite(key: str, citation: str, locator: str = "") -> Source:
    """Add a publication to those that formulas may cite.

    Parameters
    ----------
    key, citation, locator : str
        As in `Source`.

    Returns
    -------
    Source
        The publication.

    Raises
    ------
    ValueError
        If another publication has the key.
    """
    source = Source(key, citation, locator)
    if SOURCES.setdefault(key, source) != source:
        message = f"the source '{key}' is declared already, as '{SOURCES[key].citation}'"
        raise ValueError(message)
    return source


cite(
    "derivation",
    "Derived for this product; the step-by-step simulation in tests/simulator proves it",
)
cite(
    "thakur2005",
    "R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations "
    "in MPICH, International Journal of High Performance Computing Applications 19(1), 2005",
    "doi:10.1177/1094342005051521",
)
cite(
    "chan2007",
    "E. Chan, M. Heimlich, A. Purkayastha and R. van de Geijn, Collective communication: theory, "
    "practice, and experience, Concurrency and Computation 19(13), 2007",
    "doi:10.1002/cpe.1206",
)
cite(
    "patarasuk2009",
    "P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of "
    "workstations, Journal of Parallel and Distributed Computing 69(2), 2009",
    "doi:10.1016/j.jpdc.2008.09.002",
)
cite(
    "sanders2009",
    "P. Sanders, J. Speck and J. L. Traff, Two-tree algorithms for full bandwidth broadcast, "
    "reduction and scan, Parallel Computing 35(12), 2009",
    "doi:10.1016/j.parco.2009.09.001",
)
cite(
    "barnett1994",
    "M. Barnett, L. Shuler, R. van de Geijn, S. Gupta, D. Payne and J. Watts, Interprocessor "
    "collective communication library (InterCom), Scalable High Performance Computing Conference, "
    "1994",
    "doi:10.1109/SHPCC.1994.296665",
)
cite(
    "bruck1997",
    "J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, Efficient algorithms for "
    "all-to-all communications in multiport message-passing systems, IEEE Transactions on "
    "Parallel and Distributed Systems 8(11), 1997",
    "doi:10.1109/71.642949",
)
cite(
    "jain2010",
    "N. Jain and Y. Sabharwal, Optimal bucket algorithms for large MPI collectives on torus "
    "interconnects, International Conference on Supercomputing, 2010",
    "doi:10.1145/1810085.1810093",
)
cite(
    "desensi2024",
    "D. De Sensi, T. Bonato, D. Saam and T. Hoefler, Swing: short-cutting rings for higher "
    "bandwidth allreduce, NSDI, 2024",
    "arXiv:2401.09356",
)
cite(
    "scalingbook",
    "J. Austin et al., How to scale your model, Google DeepMind, 2025",
    "github.com/jax-ml/scaling-book",
)
cite(
    "nccl",
    "NVIDIA, NCCL 2.30, tuning model and ring, tree and NVLS algorithms",
    "github.com/NVIDIA/nccl",
)
cite(
    "nccltests",
    "NVIDIA, nccl-tests, doc/PERFORMANCE.md (algorithm and bus bandwidth)",
    "github.com/NVIDIA/nccl-tests",
)
cite(
    "hockney1994",
    "R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel "
    "Computing 20(3), 1994",
    "doi:10.1016/S0167-8191(06)80021-9",
)
cite(
    "sharp2016",
    "R. L. Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP): a hardware "
    "architecture for efficient data reduction, COMHPC, 2016",
    "doi:10.1109/COMHPC.2016.006",
)
