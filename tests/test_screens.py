"""What a terminal shows: lines fit it, nothing is lost by that, and the answer comes first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweeps.cli.sections import sections_of
from sweeps.spec.catalog import find_sweep, spec_names
from sweeps.spec.files import read_toml
from sweeps.wrapping import aligned, fitted
from tests.cli_runner import Runner
from tests.tables import examples

TRACES = Path(__file__).parent / "data" / "traces"
NOT_GIVEN = "\nDefaults: "
STEP = "analysis --model llama3-8b --gpus 64 --seq-len 8192 --global-batch 512"
COMMANDS = examples(__file__, "commands", STEP=STEP)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give commands a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def numbers(text: str) -> set[str]:
    """Return the numbers in what a command says before what wasn't given."""
    return set(re.findall(r"\d[\d.,]*", text.split(NOT_GIVEN, maxsplit=1)[0]))


BAND = r"\((?:±\d+|-\d+/\+\d+) %\)"


@pytest.mark.thorough_cases("line4", "hops", "quickstart")
@pytest.mark.parametrize("line", COMMANDS)
def test_lines_fit_the_terminal_and_nothing_is_lost(
    cli: Runner, narrow: pytest.MonkeyPatch, line: str
) -> None:
    whole = ""
    for columns in (1000, 80) if line != COMMANDS[1] else (1000, 80, 50):
        narrow.setenv("COLUMNS", str(columns))
        output = cli(line).out
        assert max(map(len, output.splitlines())) <= columns
        whole = whole or output
        assert numbers(whole) <= numbers(output)


@pytest.mark.parametrize("line", COMMANDS[:3])
def test_defaults_are_a_line_and_whole_with_show(
    cli: Runner, narrow: pytest.MonkeyPatch, line: str
) -> None:
    _, after = cli(line).out.split(NOT_GIVEN)
    folded, _ = after.split("\nMore: ")
    assert folded.count("\n") < 3
    assert all(len(row) <= 80 for row in folded.splitlines())
    left_out = int(re.search(r"(\d+)\s+more$", folded)[1])  # type: ignore[index]
    assert left_out > 3
    opened = cli(f"{line} --show defaults").out.split("\nDefaults, by source\n")[1]
    lists = re.findall(r"([a-z0-9_, \n]+)\s=\s", opened)
    names = [name for names in lists for name in names.split(",")]
    assert len(names) >= left_out + folded.count(" = ")


@pytest.mark.thorough
def test_of_many_cells_the_ends_and_the_winner_come_first(
    cli: Runner, narrow: pytest.MonkeyPatch
) -> None:
    lines = cli(COMMANDS[2]).out.splitlines()
    unknown = "band not known"
    ends = rf"from \S+ µs \(direct, ranks 8; {unknown}\) to \S+ ms \(ring, ranks 64; {unknown}\)"
    assert re.match(ends, " ".join(" ".join(lines[:3]).split()))
    assert "shortest time by algorithm: direct in 2 of 2" in lines
    shortest = cli(COMMANDS[4]).out
    first = rf"\S+ s per step {BAND}, MFU \d+ %.*; shortest, with recompute none, tp \d, pp \d"
    assert re.match(first, " ".join(shortest.split()))


def test_a_wide_table_stands_in_blocks_with_its_keys() -> None:
    heads = ["name", *(f"column_{index}" for index in range(12))]
    rows = [heads, ["one", *(f"{index}.5 ms" for index in range(12))]]
    lines = list(aligned(rows, left=1, keys=1))
    assert len(lines) == 2  # the tests' terminal is wide


def test_blocks_begin_with_the_keys(narrow: pytest.MonkeyPatch) -> None:
    heads = ["name", *(f"column_{index}" for index in range(12))]
    rows = [heads, ["one", *(f"{index}.25 ms" for index in range(12))]]
    text = "\n".join(aligned(rows, left=1, keys=1))
    blocks = text.split("\n\n")
    assert len(blocks) == 2
    assert all(block.splitlines()[-1].startswith("  one  ") for block in blocks)
    assert [f"{index}.25 ms" in text for index in range(12)] == [True] * 12


def test_heads_and_long_cells_take_several_lines(narrow: pytest.MonkeyPatch) -> None:
    words = "a cell of many words that nobody reads at once, and so it is cut where words end"
    rows = [["what", "first_long_name", "second long name"], ["1.5 ms", "2.5 ms", words]]
    lines = list(aligned(rows, left=3, indent=""))
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).endswith("cut where words end")
    assert sum("1.5 ms" in line for line in lines) == 1


def test_a_row_of_one_cell_stands_above_those_that_follow() -> None:
    lines = list(aligned([["", "a"], ["a heading that is long"], ["b", "1"]], indent=""))
    assert lines == ["   a", "a heading that is long", "b  1"]


def test_prose_goes_on_below_itself(narrow: pytest.MonkeyPatch) -> None:
    text = "name          " + "word " * 30
    lines = [line.rstrip("\n") for line in fitted([text, "  short", "two\nlines"])]
    assert lines[1].startswith(" " * 14 + "word")
    assert lines[-3:] == ["  short", "two", "lines"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", spec_names("sweeps"))
def test_a_figures_title_is_read_at_a_glance(name: str) -> None:
    figures = read_toml(find_sweep(name)).get("figures", [])
    assert [figure["title"] for figure in figures if len(figure.get("title", "")) > 70] == []


def test_what_a_shown_value_does_not_lack_is_no_reason(cli: Runner) -> None:
    """An energy that isn't known is told where it is asked for, not beside times that are."""
    line = "collective --topology ring,switch --gpus 1,8 --message-size 1MiB --bandwidth 50GB/s"
    assert "not_known" not in cli(line).out
    assert "not_known" in cli(f"{line} --csv").out
    every = cli(line.replace("ring,switch", "switch --algorithm inc,ring")).out
    assert "no_reduction_in_the_network" in every
    assert "not_known" not in every


def test_bytes_of_a_row_are_all_in_powers_of_two_or_of_ten(cli: Runner) -> None:
    for line in ("collective --N 8,16 --M 1KiB,64MiB,1GiB", "collective --N 8 --M 1GiB"):
        output = cli(line).out.split(NOT_GIVEN)[0]
        assert re.search(r" [KMG]iB\b", output)
        assert not re.search(r" [kMG]B(?!/)", output)
    for line in ("collective --N 8,16 --M 1kB,1GB", "collective --N 8 --M 1GB", f"{STEP} --tp 8"):
        output = cli(line).out.split(NOT_GIVEN)[0]
        assert re.search(r" [kMG]B(?!/)", output)
        assert not re.search(r" [KMG]iB\b", output)


@pytest.mark.thorough
def test_commands_begin_with_their_answer(cli: Runner) -> None:
    output = cli("overlap --compute 1ms,10ms,50ms --comm 10ms").out.splitlines()[0]
    assert output == (
        "overlap gains most, 2x, with compute time 10 ms; least, 1.1x, with compute time 1 ms "
        "(exact for the given values)"
    )
    first, output, *_ = cli("hops").out.splitlines()
    assert first.startswith("longest communication: MLP DP-16 18.67 ms, 493.3 mJ (notebook); MLP ")
    assert output.startswith("  corrected links: 0.2 to 0.58 times the time, just the energy of ")


FIRST = examples(__file__, "first", BAND=BAND, STEP=STEP)


@pytest.mark.thorough_cases(
    "llama3-405b", "--params 70", "buy", "normal mfu", "nccl-measured", "llama3-70b-plans"
)
@pytest.mark.parametrize(
    ("line", "answer"), [*FIRST, ("analysis --params 7 --recompute all", r"  \(--params 7 is read")]
)
def test_the_first_line_is_the_answer(
    cli: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, answer: str
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)
    assert re.match(answer, cli(line, fine=False).out)


# Of one value and of several, what every first line says of how sure the answer is.
SURE = r"±\d+ %|-\d+/\+\d+ %|band not known|exact"
ANSWERS = examples(__file__, "answers")


@pytest.mark.thorough_cases("quickstart", "hops --", every=2)
@pytest.mark.parametrize("line", ANSWERS)
def test_the_first_line_says_how_sure_it_is(
    cli: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)
    first = cli(line).out.splitlines()[0]
    assert re.search(r"\d", first) or "nothing" in first
    assert re.search(SURE, first)


@pytest.mark.thorough
def test_a_sweeps_table_has_the_units_of_other_commands(cli: Runner, tmp_path: Path) -> None:
    output = cli(f"run quickstart --no-plot --output {tmp_path / 'a.nc'}").out
    assert re.match(r"fastest of the \d+ cases: ", output)
    assert re.search(r"\d µs\b", output)


@pytest.mark.thorough
def test_validate_begins_with_its_errors_and_names_what_failed(cli: Runner) -> None:
    line = "validate training --source torchtitan_202412"
    first, *rest = cli(line).out.splitlines()
    assert re.match(r"Step time: \d+ runs, \d+ % in the band \(target 80 %\)", first)
    failed = any(one.startswith("FAILED the 10 % bound") for one in rest)
    assert cli(f"{line} --strict", fine=False).code == failed


@pytest.mark.thorough
def test_a_sweeps_table_begins_with_what_it_says(cli: Runner, tmp_path: Path) -> None:
    sets = "--set axes.hardware=dgx-a100,dgx-h100 --set axes.world_size=256,512"
    output = cli(f"run models-on-machines {sets} --no-plot --output {tmp_path / 'a.nc'}").out
    won, reached, title, *_ = output.splitlines()
    assert title.startswith("Throughput per GPU of the best plan (tokens/s)")
    assert won.startswith("highest in each of 10 cases: dgx-h100, 99 to 1")
    assert won.endswith("% more than the next (measured -12/+18 % to -60/+90 %)")
    assert reached.startswith("the best at 512 GPUs: from ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("running", "Running: 11 of 24 rows are within 10 %, MAPE 18 %"),
        ("context", "Attention: 55 of 107 rows are within 10 %"),
        ("userbuffers", "Userbuffers: 95 % of 88 layers of NVIDIA's presets are within 2 %"),
        ("nccl-collectives", "Collectives: median error 6.1 % over 37 groups; 25 of 37 within 10"),
        (
            "outside-collectives",
            "Collectives: median error 7.8 % over 24 groups; 13 of 24 within 10",
        ),
    ],
)
def test_every_table_of_validate_begins_with_its_result(
    cli: Runner, table: str, words: str
) -> None:
    assert cli(f"validate {table}").out.startswith(words)


PLAN = "plan --model llama3-70b --hardware dgx-h100 --gpus 512 --batch-size 4M --seq-len 8k"


@pytest.mark.parametrize(
    "line",
    [
        f"{STEP} --tp 8",
        f"{STEP} --micro-batch 8",
        "analysis --params 70e9 --gpus 64 --dp 64",
        "analysis --model deepseek-v3 --gpus 1024 --pp 8 --ep 32 --tp 4 --seq-len 4096 --price 2.5",
    ],
)
def test_an_analysis_is_one_screen(cli: Runner, narrow: pytest.MonkeyPatch, line: str) -> None:
    lines = cli(line).out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert re.search(f"{BAND}|band not known", lines[0])
    assert sum(one.startswith(("Defaults: ", "More: --show parts,memory,")) for one in lines) == 2


@pytest.mark.thorough_cases("run ", "buy ", "tune ", "hops", "gpt3-175b", "validate")
@pytest.mark.parametrize("line", [
    "collective --gpus 16 --message-size 1GiB --hardware dgx-h100",
    "collective --gpus 8,16,32 --message-size 1KiB:1GiB:x1024 --hardware dgx-h100",
    "collective --topology ring --N 2:101:+1 --M 1KiB",
    "analysis --model llama3-8b,qwen3-32b --gpus 64:1024:x2 --tp 8 --seq-len 8k",
    "overlap --compute 50ms --communication 10ms --efficiency 0.8",
    "hops", "tune --model Qwen/Qwen3-32B --max-tp-size 4",
    "buy --model llama3-70b --tokens 15T --days 30 --global-batch-size 16M --price 2.5",
    "validate", "validate memory", "validate running", "validate context",
    "validate nccl-collectives", "validate outside-collectives", "validate userbuffers",
    *(f"trace {TRACES / name}.json.gz" for name in ("control", "nccl_data", "sampled_rank-0")),
    *(f"calibrate {TRACES.parent / 'logs' / name}" for name in ("rccl-mi300x.log", "usual.csv")),
    "catalog", "catalog dgx-h100", "catalog deepseek-v3", "catalog kimi-k3",
    "catalog megatron-lm", "catalog llama3-70b", "list",
    "normal all_reduce --message-size 1KiB:8GiB:x16", "show step_time", "show ring",
    "show all_reduce", "show hierarchical.all_reduce.ring_ring", "list --op all_reduce",
    "list --topology torus",
    "list --op all_reduce --topology switch", "list --kind formulas", "list --kind algorithms",
    "analysis --model llama3-8b,llama3-70b,qwen3-32b,gpt3-175b,deepseek-v3 --gpus 64:1024:x2 --tp 8"
    " --seq-len 8k",
    *(f"run {name}" for name in (
        "network-choice", "scale-up-domain", "models-on-machines", "design-space", "quickstart",
        "all-reduce-algorithms", "bandwidth-what-if", "llama3-70b-plans", "overlap-mechanisms",
        "tp-overlap", "llama3-8b-hops", "nccl-measured",
    )),
])  # fmt: skip
def test_a_screen_has_at_most_40_lines(
    cli: Runner, narrow: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    narrow.chdir(tmp_path)
    lines = cli(line).out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    [
        PLAN,
        "plan --model deepseek-v3 --gpus 1024 --objective memory",
        "plan --model llama3-405b --gpus 8",
    ],
)
def test_a_plan_is_one_screen(cli: Runner, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(line, fine=False)
    lines = result.out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert result.code == 1 or re.search(BAND, lines[0])


@pytest.mark.thorough
def test_sections_are_shown_by_their_names(cli: Runner) -> None:
    line = "plan --model llama3-8b --gpus 16 --tp 2 --pp 1"
    plain = cli(line).out
    sections = sections_of("plan")
    assert tuple(one.split()[0] for one in cli("plan --show").out.splitlines()) == sections
    for name in sections:
        shown = cli(f"{line} --show {name}").out
        assert shown.startswith(plain.rpartition("More:")[0])
        assert len(shown.splitlines()) > len(plain.splitlines())
    assert cli(f"{line} --show all").out.count("More:") == 0
    assert "no such section" in cli(f"{line} --show reason", fine=False).err
    assert "--show" in cli(f"{line} --show launch --csv", fine=False).err


def test_run_without_a_spec_lists_the_shipped_ones(cli: Runner) -> None:
    lines = cli("run").out.splitlines()
    assert lines[0].startswith(f"{len(spec_names('sweeps'))} sweeps to run: ")
    assert [line.split()[0] for line in lines[1:]] == list(spec_names("sweeps"))


@pytest.mark.parametrize("command", ["plan", "analysis", "collective", "buy"])
def test_help_is_short_and_whole_where_it_is_asked_for(
    cli: Runner, narrow: pytest.MonkeyPatch, command: str
) -> None:
    short, whole = (cli(f"{command} {option}").out for option in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 60
    assert "options, with defaults: --help-all" in short
    named = {word for word in whole.split() if word.startswith("--")}
    assert {word.strip(".,") for word in short.split() if word.startswith("--")} <= {
        *(word.strip(".,") for word in named),
        "--help-all",
    }
    assert "\nAliases:\n" in whole


@pytest.mark.thorough
def test_a_stored_sweep_is_described_on_one_screen(
    cli: Runner, narrow: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    narrow.chdir(tmp_path)
    cli("run network-choice --no-plot --output a.nc")
    lines = cli("info a.nc").out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for section in ("sources", "variables"):
        assert len(cli(f"info a.nc --show {section}").out.splitlines()) > len(lines)
