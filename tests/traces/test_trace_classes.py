"""What kernels are, by the names that libraries give them."""

from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.traces.patterns import CLASSES, EXCLUDED, load_patterns
from tests.tables import examples

GEMM = examples(__file__, "gemm")
OTHER = examples(__file__, "other")
COMMUNICATION = examples(__file__, "communication")
WAIT = examples(__file__, "wait")
PATTERNS = load_patterns()


def kind(category: str, name: str) -> str:
    code = PATTERNS.code(category, name)
    return "excluded" if code == EXCLUDED else CLASSES[code]


@pytest.mark.parametrize(
    ("expected", "names"),
    [("gemm", GEMM), ("other", OTHER), ("communication", COMMUNICATION), ("wait", WAIT)],
)
def test_kernels_of_libraries(expected: str, names: tuple[str, ...]) -> None:
    assert {name: kind("kernel", name) for name in names} == dict.fromkeys(names, expected)
    # Old files write the category with a capital.
    assert {kind("Kernel", name) for name in names} == {expected}


@pytest.mark.parametrize(("category", "name", "expected"), examples(__file__, "rows_by_category"))
def test_rows_by_category(category: str, name: str, expected: str) -> None:
    assert kind(category, name) == expected


def test_own_patterns_go_first(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        '[[rules]]\nclass = "communication"\nnames = ["^my_ring"]\nexcept = ["local"]\n'
    )
    patterns = load_patterns(path)
    assert CLASSES[patterns.code("kernel", "my_ring_exchange")] == "communication"
    assert CLASSES[patterns.code("kernel", "my_ring_local")] == "other"
    assert CLASSES[patterns.code("kernel", GEMM[0])] == "gemm"
    path.write_text(f'alone = true\nactivity = ["kernel"]\n{path.read_text()}')
    patterns = load_patterns(path)
    assert CLASSES[patterns.code("kernel", GEMM[0])] == "other"
    assert patterns.code("gpu_memcpy", "Memcpy DtoD") == EXCLUDED


def test_faults_of_patterns_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'aktivity = ["kernel"]\n'
        '[[rules]]\nclass = "comunication"\nnames = ["("]\n'
        '[[rules]]\nclass = "copy"\nname = ["x"]\n'
        '[[rules]]\nclass = "gemm"\nnames = "x"\n'
    )
    with pytest.raises(InputError) as caught:
        load_patterns(path)
    text = "\n".join(caught.value.faults)
    assert "aktivity: no such key; did you mean 'activity'?" in text
    assert "rule 1.class = 'comunication': is unknown; did you mean 'communication'?" in text
    assert "rule 1.names = '(': is not a regular expression" in text
    assert "rule 2.name: no such key; did you mean 'names'?" in text
    assert "rule 2 needs what it is about; give names, or categories" in text
    assert "rule 3.names = 'x': is not a list of texts" in text
    assert len(caught.value.faults) == 6
