"""Every option of a collective, an analysis, plans and buying changes the result, or is refused."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from sweeps.cli import buy_question, commands, plan_calculator, plan_command
from sweeps.errors import InputError
from tests.calibrate.simulated import timed, write_logs
from tests.cli_runner import Done, Runner
from tests.tables import examples

# Where a result goes and in which form: of every command that computes, tested on one.
OUTPUTS = set("show output overwrite plot style as_csv as_json compress asserts".split())
# How something is computed or by whom, which must change no result; own files, which tests of
# their own give.
MEANS = {"max_memory", "workers", "scheduler", "resume", "timeout", "formulas", "hardware_folder",
         "model_folder", "framework_folder", "launch_files"}  # fmt: skip

COLLECTIVE = "collective --N 32 --M 1MiB --json"
BARE = f"{COLLECTIVE} --software none"
TORUS = f"{BARE} --topology torus"
PODS = f"{BARE} --topology hierarchical --nodes-per-pod 2 --oversubscription 1.5"
DENSE = "analysis --model llama3-8b --gpus 32 --tp 2 --pp 2 --seq-len 4096 --micro-batches 8 --json"
ROUTED = (
    "analysis --model mixtral-8x7b --gpus 32 --tp 2 --sp --seq-len 4096 --micro-batches 8 --json"
)
PARAMS = "analysis --topology ring --num-gpus 8 --dp 4 --tp 2 --seq-len 1024 --hidden-size 4096"
GRID = f"{DENSE} --topology torus --mesh-nx 4"
# By command and option: what is given, and the line to which it is added where that isn't usual.
Cases = dict[str, str | tuple[str, str]]
OF_COLLECTIVES: Cases = examples(__file__, "of_collectives", BARE=BARE, PODS=PODS, TORUS=TORUS)
OF_TRAINING: Cases = examples(
    __file__, "of_training", DENSE=DENSE, GRID=GRID, PARAMS=PARAMS, ROUTED=ROUTED
)
SMALL = (
    "plan --model llama3-8b --gpus 8 -b 64 --tp 1,2 --pp 1 --cp 1 --zero-stage 1 --recompute none"
)
OF_PLANS: Cases = examples(__file__, "of_plans", SMALL=SMALL)
HOPS = "hops --json"
OVERLAP = "overlap --compute 50ms --comm 40ms --json"
BUCKETS = f"{OVERLAP} --kind ddp_buckets"
PRODUCT = (
    "overlap --kind ring_exchange --rows 8192 --columns 3584 --depth 4096 --comm 1ms "
    "--ranks 8 --hardware dgx-h100"
)
BULK = "overlap --kind bulk_margin --compute 1ms --comm 900us --sms 132 --num-sm 8 --json"
LINKED = (
    "overlap --kind bulk_margin --compute 1ms --M 64MiB --ranks 8 --num-sm 8 --latency 1us "
    "--bandwidth '300 GB/s' --sm-bandwidth '20 GB/s' --sms 132 --json"
)
QUEUED = (
    f"{BULK.replace('bulk_margin', 'bulk_queued')} --rows 8192 --columns 3584 --depth 4096 "
    "--tile-time 20us"
)
STAGES = "overlap --kind pipeline --forward 1ms --backward 2ms --p2p 100us --pp 4 --micro-batches 8"
FUSED = (
    "overlap --kind fused_messages --compute 9ms --transfer 3ms --messages 8 "
    "--message-latency 20us --json"
)
LESS = "overlap --compute 20ms --comm 40ms --efficiency 0.5"
OF_OVERLAP: Cases = examples(
    __file__,
    "of_overlap",
    BUCKETS=BUCKETS,
    FUSED=FUSED,
    LESS=LESS,
    LINKED=LINKED,
    OVERLAP=OVERLAP,
    PRODUCT=PRODUCT,
    QUEUED=QUEUED,
    STAGES=STAGES,
)
OF_HOPS: Cases = {
    "spec": "own.toml", "model": "llama3-70b", "hardware": "dgx-h100", "sequence_length": "1024",
    "element_bytes": "4", "data_parallel": "4", "tensor_parallel": "4",
    "switching": "cut_through", "algorithm": ("auto", f"{HOPS} --hardware dgx-h100"),
    "tensor": "ring", "message_bytes": ("1MiB", f"{HOPS} --messages"), "messages": "",
    "gradient_bytes": "4", "activation_bytes": "4", "layers": "all", "combined": "tp2-dp2",
    "wiring": ("in_node_links", f"{HOPS} --hardware dgx-h100"),
    "verbose": ("", HOPS.replace(" --json", "")),
    **{f"{level}_{name}": (text, f"{HOPS} --hardware dgx-h100")
       for level in ("intra", "inter", "gpu_nic")
       for name, text in (("bandwidth", "'9 GB/s'"), ("latency", "'9 us'"),
                          ("energy_per_bit", "'9 pJ/bit'"))},
}  # fmt: skip
NORMAL = "normal all_reduce --M 1KiB:1GiB:x32 --json"
OF_NORMAL: Cases = {
    "hardware": "dgx-a100",
    "ranks": "16",
    "nodes": ("4", f"{NORMAL} --ranks 16"),
    "fabric": ("efa", f"{NORMAL} --ranks 16"),
    "sizes": ("1MiB", "normal all_reduce --json"),
    "model": ("llama3-8b", "normal mfu --json"),
    "precision": ("fp8", "normal mfu --json"),
}
TRACED = Path(__file__).parent / "data" / "traces"
HTA = f"trace {TRACED / 'sampled_rank-0.json.gz'} --json"
OF_TRACES: Cases = {
    "mode": ("hta", HTA),
    "include_last_step": ("", f"{HTA} --mode hta"),
    "patterns": ("own.toml", HTA),
    "window": ("0:1ms", HTA.replace(" --json", " --plot")),
    "verbose": ("", HTA.replace(" --json", "")),
}
RUN = "validate memory --source torchtitan_h200 --json"
OF_VALIDATE: Cases = {
    "kind": ("memory", "validate training --source torchtitan_h200 --json"),
    "classes": ("none-such", RUN),
    "sources": ("prime_rl", RUN),
    "rules": ("own.toml", RUN),
    "bound": ("0.01", RUN),
    "strict": ("--bound 0.1%", RUN),
    "verbose": ("", "validate running"),
}
LOG = "calibrate all_reduce-8x1.log"
OF_CALIBRATIONS: Cases = {
    "hardware": "dgx-a100", "write": "own.toml", "at": "3MiB", "fabric": "roce", "op": "all_gather",
    "ranks": "16", "gpus_per_node": "4", "algorithm": "ring", "placement": "in-place",
    "strict": "", "verbose": ("", f"{LOG} --csv"),
    "inter_bandwidth": ("100Gbit/s", f"{LOG} --gpus-per-node 4"),
    "nics_per_node": ("1", f"{LOG} --gpus-per-node 4"), "software": "slow-nccl.toml",
}  # fmt: skip
SWEEP = "run small.toml"
OF_RUNS: Cases = {
    "settings": "ranks=4",
    "dry_run": "",
    "kind": "zarr",
    "verbose": "",
    "page": "",
}
TUNED = "tune --model qwen3-0.6b --max-tp-size 2 --operators qkv --output-dir"
OF_TUNER: Cases = examples(__file__, "of_tuner")


KNOWN: dict[str, Done] = {}


def differs(cli: Runner, base: str, flag: str, value: str) -> None:
    """Assert that an option changes what a line says or writes, or that it is refused by name."""
    if base.startswith("run"):  # whose file is whole after the first run
        value += " --overwrite"
    if base not in KNOWN:
        KNOWN[base] = cli(base, fine=False)
    plain, found = KNOWN[base], cli(f"{base} {flag} {value}", fine=False)
    if found.code == 2:
        # A file that isn't there is refused by its name.
        named = flag in found.err or (value.startswith("own.") and value in found.err)
        assert named, found.err
        return
    assert (found.code, found.out) != (plain.code, plain.out), f"{base} {flag} {value}"


def option_of(command: str, name: str) -> click.Option:
    context = click.Context(commands)
    actual_command = commands.get_command(context, command)
    assert actual_command is not None
    return next(
        param
        for param in actual_command.params
        if isinstance(param, click.Option) and param.name == name
    )


def options_of(command: str) -> list[str]:
    actual_command = commands.get_command(click.Context(commands), command)
    assert actual_command is not None
    names = [str(param.name) for param in actual_command.params if isinstance(param, click.Option)]
    return [name for name in names if name not in OUTPUTS | MEANS]


def check(cli: Runner, command: str, cases: Cases, usual: str, name: str) -> None:
    case = cases[name]
    value, base = (case, usual) if isinstance(case, str) else case
    differs(cli, base, option_of(command, name).opts[0], value)


@pytest.mark.parametrize("name", options_of("collective"))
def test_options_of_collective(cli: Runner, name: str) -> None:
    check(cli, "collective", OF_COLLECTIVES, COLLECTIVE, name)


@pytest.mark.thorough_cases("verbose", "sensitivity", "ep_mechanism", every=8)
@pytest.mark.parametrize("name", options_of("analysis"))
def test_options_of_analysis(cli: Runner, name: str) -> None:
    check(cli, "analysis", OF_TRAINING, DENSE, name)


@pytest.mark.thorough_cases("memory", "moe", "num_experts", "lost_nodes", "sensitivity", every=3)
@pytest.mark.parametrize("name", [option for option in options_of("plan") if option in OF_PLANS])
def test_options_of_plan(cli: Runner, name: str) -> None:
    check(cli, "plan", OF_PLANS, SMALL, name)


OF_OTHERS = {"overlap": (OF_OVERLAP, OVERLAP), "hops": (OF_HOPS, HOPS),
             "normal": (OF_NORMAL, NORMAL), "trace": (OF_TRACES, HTA),
             "validate": (OF_VALIDATE, RUN), "calibrate": (OF_CALIBRATIONS, LOG),
             "run": (OF_RUNS, SWEEP),
             "run-all": ({}, "run-all")}  # fmt: skip
MEASURED = Path(__file__).parents[1] / "specs" / "measured" / "training.csv"


@pytest.fixture
def inputs(tmp_path: Path) -> None:
    """Write what some commands read: a log, a table of runs, a sweep."""
    groups = [("all_reduce", 8, 1)]
    slow = {"channel_efficiency": 0.62, "nvls_efficiency": 0.52, "collective_launch_time": 9e-6}
    write_logs(tmp_path, timed(groups, slow, noise=0.01, seed=5), groups)
    head, *rows = MEASURED.read_text(encoding="utf-8").splitlines()
    own = [row for row in rows if "torchtitan" in row][:6]
    (tmp_path / "own.csv").write_text("\n".join([head, *own]), encoding="utf-8")
    library = MEASURED.parents[1] / "software" / "nccl.toml"
    text = library.read_text(encoding="utf-8").replace('name = "nccl"', 'name = "slow-nccl"')
    (tmp_path / "slow-nccl.toml").write_text(text.replace('value = "5.0 us"', 'value = "9.0 us"'))
    (tmp_path / "small.toml").write_text(
        'quantities = ["time"]\n[axes]\nranks = [2, 8]\n[constants]\nmessage_bytes = "1 MiB"\n'
    )


@pytest.mark.thorough_cases("hops-v", "normal", "window", "te-kind", "te-verbose", every=4)
@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command in OF_OTHERS for name in options_of(command)]
)
def test_options_of_other_commands(cli: Runner, command: str, name: str) -> None:
    cases, usual = OF_OTHERS[command]
    check(cli, command, cases, usual, name)


OF_STUDIES = ["--set title=x", "--verbose", "--max-memory 1MiB", "--workers 2", "--resume",
              "--scheduler tcp://127.0.0.1:1", "--assert 'step_time < 1 s'", "--page"]  # fmt: skip


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("option", OF_STUDIES)
def test_studies_refuse_what_is_of_sweeps_alone(cli: Runner, option: str) -> None:
    ran = cli(f"run llama3-8b-hops --no-plot {option}", fine=False)
    assert (ran.code, option.split(maxsplit=1)[0].strip("-") in ran.err) == (2, True)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(("line", "result"), examples(__file__, "idle", LOG=LOG, SWEEP=SWEEP))
def test_what_would_do_nothing_is_refused(cli: Runner, line: str, result: str) -> None:
    assert result in cli.refused(line)


@pytest.mark.usefixtures("inputs")
def test_what_a_command_alone_has_is_asserted_too(cli: Runner, tmp_path: Path) -> None:
    assert cli(f"{LOG} --assert 'error_after < 1'", fine=False).code == 0
    ran = cli(f"{LOG} --assert 'error_after < 0.001'", fine=False)
    assert (ran.code, "values don't hold" in ran.err) == (3, True)
    with (tmp_path / "small.toml").open("a") as spec:
        spec.write('[[reductions]]\nquantity = "time"\nname = "least"\nover = ["ranks"]\n')
        spec.write('[[asserts]]\nthat = "least < 1 us"\n')
    ran = cli(SWEEP, fine=False)
    assert (ran.code, "assert least < 1 us: is" in ran.err) == (3, True)


@pytest.mark.thorough_cases(every=5)
@pytest.mark.parametrize(
    "name", [option for option in options_of("tune") if option != "output_dir"]
)
def test_options_of_the_tuner(cli: Runner, tmp_path: Path, name: str) -> None:
    plain = cli(f"{TUNED} plain --json", fine=False)
    flag = option_of("tune", name).opts[0]
    actual = cli(f"{TUNED} other {flag} {OF_TUNER[name]} --json", fine=False)
    if actual.code == 2:
        named = (flag, name, OF_TUNER[name])
        assert any(text and text in actual.err for text in named), actual.err
    else:
        files = [sorted(one.read_text().replace(folder, "") for one in (tmp_path / folder).iterdir()
                        if one.is_file()) for folder in ("plain", "other")]  # fmt: skip
        assert (actual.out, files[1]) != (plain.out, files[0])


def value_of(name: str) -> str:
    case = OF_TRAINING[name]
    return shlex.split(case if isinstance(case, str) else case[0])[0]


def asked(command: str, line: str) -> Any:
    """Return what a command asks for with some options."""
    actual_command = commands.get_command(click.Context(commands), command)
    assert actual_command is not None
    with actual_command.make_context(command, shlex.split(line)) as context:
        if command == "plan":
            options = plan_command.read_options(context.params)
            if options.calculator:
                options = plan_calculator.planned(options, context.params)
            request = plan_command._request(options, context.params)
            return (request.first, request.axes)
        return buy_question.read_purchases(context.params)


# What a plan's shapes are is given whole or not at all; the last is --tokens here.
OTHER = {"gated_mlp": "on", "tied_embeddings": "off"}  # Of the calculator's sizes
ELSEWHERE = set("model show save batch_size rank_order timeline verbose tree_algo".split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "base"),
    [
        ("plan", "--model llama3-8b"),
        ("plan", "--params 70 --objective time"),
        ("buy", "--model llama3-8b --tokens 1T --days 9"),
    ],
)
def test_quantities_are_in_the_question_of(command: str, base: str) -> None:
    """What a quantity does in a plan's step is what it does in an analysis."""
    plain = asked(command, base)
    of_its_own = {*OF_PLANS, "budget", "capital_cost"}
    rest = [name for name in options_of(command) if name not in of_its_own]
    assert {"global_batch_size", "sequence_length", "gpu_hour_price"} <= set(rest)
    for name in rest:
        if name not in ELSEWHERE:
            flag = option_of(command, name).opts[0]
            value = OTHER.get(name, value_of(name)) if "--params" in base else value_of(name)
            try:
                actual_error = str(asked(command, f"{base} {flag} '{value}'"))
            except InputError as error:  # what can't act here is refused by its name
                actual_error = str(error)
                assert name in actual_error
            assert actual_error != str(plain), name


BUY = "--model llama3-8b --tokens 1T --days 9"


@pytest.mark.parametrize(
    "text",
    [BUY.replace("1T", "2T"), BUY.replace("9", "8"), f"{BUY} --budget 9M", f"{BUY} --capital 9000"],
)
def test_options_of_buy_alone(text: str) -> None:
    assert str(asked("buy", text)) != str(asked("buy", BUY))


def test_nothing_is_left_out() -> None:
    assert set(options_of("collective")) == set(OF_COLLECTIVES)
    assert set(options_of("analysis")) == set(OF_TRAINING)
    assert set(OF_PLANS) <= set(options_of("plan"))


# Where results go.


@pytest.mark.thorough
def test_how_a_file_is_stored(cli: Runner, tmp_path: Path) -> None:
    line = "collective --N 2:64:x2 --M 1KiB:1GiB:log199"
    sizes = {}
    for index, option in enumerate(("", "--compress")):
        cli(f"{line} --output {index}.nc {option}")
        sizes[option] = (tmp_path / f"{index}.nc").stat().st_size
    assert sizes["--compress"] < sizes[""]
    assert "--compress" in cli.refused(f"{line} --output x.csv --compress")


# Numbers that nothing takes.


@pytest.mark.thorough
def test_records_of_plans_tell_of_the_training(cli: Runner) -> None:
    first, *_ = cli(f"{SMALL} --tokens 1T --price 2 --json").records
    assert first["training_tokens"] == 1e12
    assert first["run_days"] == pytest.approx(first["training_days"] / first["goodput"])
    days = first["run_days"]
    (same, *_) = cli(f"{SMALL} --days {days!r} --price 2 --json").records
    assert same["training_tokens"] == pytest.approx(1e12)
    assert same["run_cost_usd"] == pytest.approx(first["run_cost_usd"])
