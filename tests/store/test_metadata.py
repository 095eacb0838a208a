"""Where a file comes from, without the machine that made it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.store.encode import code_digest, created, fingerprint, portable, provenance, versions
from tests.tables import examples


def attrs(**changes: object) -> dict[str, str]:
    given = {
        "title": "A sweep",
        "spec_text": 'title = "A sweep"\n',
        "command": ["/usr/bin/sweeps", "run", "specs/a.toml", "--output=/home/me/x.nc"],
        "fingerprint": "f",
        "references": "somebody, 2009",
    }
    return provenance(**{**given, **changes})  # type: ignore[arg-type]


def test_the_date_is_fixed_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert created() == "2023-11-14T22:13:20Z"
    assert attrs() == attrs()
    assert attrs()["date_created"] == "2023-11-14T22:13:20Z"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", created())


@pytest.mark.parametrize("text", ["today", "1.5", "9" * 30])
def test_a_date_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(InputError, match=f"SOURCE_DATE_EPOCH = '{text}': is not a time; whole"):
        created()


def test_what_cf_asks_for_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    outcome_found = attrs()
    wanted = ["Conventions", "title", "institution", "source", "history", "references", "comment"]
    assert set(wanted) <= set(outcome_found)
    assert all(outcome_found.values())
    assert outcome_found["Conventions"] == "CF-1.11"
    assert outcome_found["history"] == "1970-01-01T00:00:00Z sweeps run specs/a.toml --output=x.nc"
    assert outcome_found["spec_sha256"] == hashlib.sha256(b'title = "A sweep"\n').hexdigest()
    assert re.search(r"numpy \d", outcome_found["source"])
    assert "summary" not in outcome_found


@pytest.mark.parametrize(("command", "expected"), examples(__file__, "command_lines"))
def test_a_command_line_without_places(command: list[str], expected: str) -> None:
    assert portable(command) == expected


def test_fingerprint_changes_with_all_that_matters() -> None:
    first = fingerprint("spec", "code", {"compress": False, "inputs": 1})
    assert first == fingerprint("spec", "code", {"inputs": 1, "compress": False})
    others = {
        fingerprint("spec ", "code", {"compress": False, "inputs": 1}),
        fingerprint("spec", "code2", {"compress": False, "inputs": 1}),
        fingerprint("spec", "code", {"compress": True, "inputs": 1}),
        fingerprint("spec", "code"),
        first,
    }
    assert len(others) == 5


def test_code_digest_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    seen = set()
    for content in ("a = 1\n", "a = 2\n"):
        (package / "__init__.py").write_text(content)
        code_digest.cache_clear()  # it is read once a process
        seen.add(code_digest(("some_package", "no_such_package")))
    (package / "other.py").touch()
    seen.add(code_digest(("some_package",)))
    assert len(seen) == 3
    assert code_digest() == code_digest()


def test_versions_of_what_is_installed() -> None:
    assert list(versions(["numpy", "no-such-distribution"])) == ["numpy"]
