"""Contracts for programs: assertions with an exit code, the version and the schema of records."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError
from sweeps.result import SCHEMA_VERSION
from sweeps.spec.contract import read_contract
from tests.calibrate.simulated import timed, write_logs
from tests.cli_runner import Runner
from tests.tables import examples

SPECS = Path(__file__).parents[1] / "specs"
LINE = "collective --N 8,16 --M 1GiB"
PLAN = "plan --model llama3-8b --gpus 8 --tp 1,2 --pp 1 -b 64 --recompute none --zero-stage 1"
SPEC = examples(__file__, "spec")


def test_what_is_asserted_is_read() -> None:
    contract = read_contract(" step_time<=8 s")
    assert (contract.name, contract.sign, contract.value, contract.units) == (
        "step_time",
        "<=",
        8.0,
        "s",
    )
    assert read_contract("mfu > 40 %").value == pytest.approx(0.4)


@pytest.mark.parametrize(("text", "result"), examples(__file__, "what_cant_be_asserted"))
def test_what_cant_be_asserted(text: str, result: str) -> None:
    with pytest.raises(InputError, match=result):
        read_contract(text)


def test_a_contract_that_holds_changes_nothing(cli: Runner) -> None:
    plain = cli(f"{LINE} --json")
    kept = cli(f"{LINE} --json --assert 'time < 1 s' --assert 'busbw >= 1 GB/s'")
    assert kept == plain


def test_one_that_doesnt_says_by_how_much_and_where(cli: Runner) -> None:
    records = cli(f"{LINE} --json").records
    most = max(record["latency_s"] for record in records)
    ran = cli(f"{LINE} --assert 'time < {most / 1.25!r} s' --assert 'busbw > 1 GB/s'", fine=False)
    assert ran.code == 3
    assert "all_reduce" in ran.out  # the result all the same
    (line,) = ran.err.splitlines()
    assert "(25 %) too much, at ranks = 16" in line
    few = cli(f"{LINE} --assert 'busbw > 1 PB/s'", fine=False)
    assert (few.code, "too little" in few.err, "2 of 2" in few.err) == (3, True, True)


def test_where_it_fails_is_said_with_units(cli: Runner) -> None:
    line = "collective --gpus 8,1000 --message-size 1MiB,1TB --topology ring"
    ran = cli(f"{line} --assert 'time < 1us'", fine=False)
    assert "too much, at ranks = 1000, message_bytes = 1 TB; 4 of 4" in ran.err


@pytest.mark.parametrize(
    ("where", "code"),
    [("time < 5", 2), ("time < 5 s", 0), ("time > 0", 0), ("ranks > 8 and time < 5", 2)],
)
def test_a_condition_in_a_file_has_units(
    cli: Runner, tmp_path: Path, where: str, code: int
) -> None:
    reduced = f"[[reductions]]\noperation = 'min'\nover = ['ranks']\nwhere = '{where}'\n"
    path = tmp_path / "spec.toml"
    path.write_text(
        "quantities = ['time']\n[axes]\nranks = [8, 16]\nmessage_bytes = [0, '1 GB']\n"
        f"{reduced}[[asserts]]\nthat = 'time >= 0'\n"
    )
    ran = cli(f"run {path} --no-plot --output {tmp_path / 'x.nc'}", fine=False)
    assert ran.code == code
    assert ("reductions.where 5: has no unit" in ran.err.replace("= '5'", "5")) == (code == 2)


def test_it_holds_where_there_is_a_value(cli: Runner) -> None:
    line = "collective --topology hierarchical --gpus-per-node 8 --M 1MiB"
    assert cli(f"{line} --N 16,17 --assert 'time < 1 s'").code == 0
    result = cli(f"{line} --N 17,18 --assert 'time < 1 s'", fine=False)
    assert (result.code, "there is no value" in result.err) == (3, True)


def test_a_quantity_that_isnt_computed_is_refused(cli: Runner) -> None:
    ran = cli(f"{LINE} --assert 'step_time < 1 s'", fine=False)
    assert (ran.code, "isn't among what is computed" in ran.err) == (2, True)


@pytest.mark.thorough
def test_of_plans_the_recommended_one_counts(cli: Runner) -> None:
    best, *other_records = cli(f"{PLAN} --json").records
    worse = max(other_record["step_time_s"] for other_record in other_records)
    assert worse > best["step_time_s"]
    between = (worse + best["step_time_s"]) / 2.0
    assert cli(f"{PLAN} --assert 'step_time < {between!r} s'").code == 0
    ran = cli(f"{PLAN} --assert 'step_time < {best['step_time_s'] / 2.0!r} s'", fine=False)
    assert (ran.code, "(100 %) too much" in ran.err) == (3, True)


@pytest.mark.thorough
@pytest.mark.parametrize(("limit", "code"), [("1 s", 0), ("1 ms", 3)])
def test_a_spec_asserts_of_its_results(cli: Runner, tmp_path: Path, limit: str, code: int) -> None:
    path = tmp_path / "contract.toml"
    path.write_text(SPEC.format(limit=limit))
    ran = cli(f"run {path}", fine=False)
    assert ran.code == code, ran.err
    assert (tmp_path / "outputs" / "contract.nc").exists()
    assert ("assert time < 1 ms: is" in ran.err) == (code == 3)
    # On the command line, and of a file that is complete already.
    again = cli(f"run {path} --json --assert 'time > 1 s'", fine=False)
    assert again.code == 3
    assert "too little" in again.err
    assert len(again.records) == 2


def test_faults_of_a_spec(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(SPEC.format(limit="soon") + "when = 'always'\n")
    ran = cli(f"run {path}", fine=False)
    assert ran.code == 2
    assert "asserts.when" in ran.err
    assert "asserts.that = 'soon'" in ran.err


def faults(value: Any, schema: Any, root: Any) -> list[str]:
    """Return what a value has that its schema doesn't allow: as much of JSON Schema as is used."""
    if "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        actual_lines = [faults(value, alternative, root) for alternative in schema["anyOf"]]
        return min(actual_lines, key=len)
    if "const" in schema or "enum" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        return [] if value in allowed else [f"{value!r} isn't of {allowed[:5]}"]
    kinds = dict(
        string=str, number=(int, float), boolean=bool, null=type(None), array=list, object=dict
    )
    listed = schema.get("type", list(kinds))
    listed = [listed] if isinstance(listed, str) else listed
    if not any(isinstance(value, kinds[kind]) for kind in listed):  # type: ignore[arg-type]
        return [f"{value!r} is no {listed}"]
    if isinstance(value, list):
        return [line for item in value for line in faults(item, schema.get("items", {}), root)]
    if not isinstance(value, dict):
        return []
    lines = [f"{name} is missing" for name in schema.get("required", ()) if name not in value]
    names = schema.get("propertyNames", {}).get("enum", value)
    lines += [f"{name} is no name there" for name in value if name not in names]
    for name, item in value.items():
        own = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
        if own is False:
            lines.append(f"{name} isn't known")
        elif isinstance(own, dict):
            lines += faults(item, own, root)
    return lines


def schema_of(cli: Runner, text: str) -> Any:
    return json.loads(cli(f"schema {text}").out)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [("specs", "sweeps/*.toml"), ("hardware", "hardware/*.toml"), ("models", "models/*.toml")],
)
def test_shipped_files_fit_their_schema(cli: Runner, text: str, pattern: str) -> None:
    schema = schema_of(cli, text)
    paths = sorted(SPECS.glob(pattern))
    assert len(paths) > 10
    for path in paths:
        content = tomllib.loads(path.read_text())
        if "cases" in content:
            continue  # a study of hops
        assert faults(content, schema, schema) == [], path.name


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("specs", {"axis": {}}),
        ("specs", {"constants": {"rank": 8}}),
        ("specs", {"axes": {"case": {"rank": [8]}}}),
        ("specs", {"reductions": [{"operation": "least"}]}),
        ("specs", {"asserts": [{"what": "time < 1 s"}]}),
        ("hardware", {"device": {"power": {"value": "700 W", "kind": "guess", "source": "me"}}}),
        ("hardware", {"device": {"sms": {"value": 132}}}),
        ("models", {"shapes": {"layer": 3}}),
        ("records", [{"schema_version": SCHEMA_VERSION + 1}]),
        ("records", [{"schema_version": SCHEMA_VERSION, "step_time_s": "soon"}]),
    ],
)
def test_a_schema_refuses_what_readers_refuse(cli: Runner, text: str, wrong: Any) -> None:
    schema = schema_of(cli, text)
    assert faults(wrong, schema, schema)


@pytest.mark.thorough_cases("normal mfu", "validate")
@pytest.mark.parametrize("line", examples(__file__, "records", LINE=LINE, PLAN=PLAN))
def test_records_fit_their_schema(cli: Runner, line: str, tmp_path: Path) -> None:
    groups = [("all_reduce", 8, 1)]
    if line.startswith("calibrate"):
        write_logs(tmp_path, timed(groups, {"channel_efficiency": 0.6}, noise=0.01, seed=5), groups)
    schema = schema_of(cli, "records")
    records = json.loads(cli(f"{line} --json").out)
    assert faults(records, schema, schema) == []


def test_records_say_their_version(cli: Runner) -> None:
    for line in (f"{LINE} --json", "plan --params 70 --json", "hops --json"):
        records: Any = json.loads(cli(line, fine=False).out)
        rows = records if isinstance(records, list) else [records]
        assert {row["schema_version"] for row in rows} == {SCHEMA_VERSION}
