"""What is shipped: every machine loads, every figure has a source and the right size."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from overhead.quantity import VOCABULARY
from sweeps.cli.options import price_words
from sweeps.errors import InputError, RunError
from sweeps.spec import files
from sweeps.spec.catalog import find_spec, find_sweep, hardware_names, load_hardware, spec_names
from sweeps.spec.fields import ORIGINS
from sweeps.spec.files import read_toml, shipped
from sweeps.spec.machine import KERNELS, Machine
from tests.tables import examples

ACCELERATORS = tuple(
    (
        "aws-p4d aws-p5 aws-p5en aws-p6-b200 aws-p6-b300 dgx-a100 dgx-a100-40gb dgx-h100 dgx-h200 "
        "dgx-spark dgx-b200 dgx-b300 gaudi3 gb200-nvl72 gb300-nvl72 gcp-a3-mega gh200 "
        "grand-teton-h100 hgx-a800 hgx-h20 hgx-h800 l40s mi300x mi325x mi355x rtx-pro-6000 tpu-7x "
        "tpu-v4 tpu-v5e tpu-v5p tpu-v6e trainium2"
    ).split()
)
NAMED_AFTER_DOCUMENTS = (
    "hop-energy-notebook",
    "hop-energy-notebook-corrected",
    "strategy-calculator",
)

# Typed from data sheets, not from the files: a port or a link in one direction (byte/s), ranks
# that it reaches, a network card in one direction (byte/s), memory that devices report (byte),
# bf16 peak (FLOP/s).
GIB = 2.0**30
FACTS = examples(__file__, "facts")
# What a figure can be on any machine of this kind, by the end of its quantity's name.  The bounds
# are closer than 8 to a figure's neighbours where bits and bytes could be mixed up.
PLAUSIBLE = {
    **examples(__file__, "plausible"),
    **dict.fromkeys((f"matmul_efficiency_{p}" for p in ("bf16", "fp8", "fp4")), (0.45, 0.95)),
    **dict.fromkeys((f"attention_efficiency_{k}" for k in KERNELS), (0.2, 0.9)),
}


@pytest.fixture(params=[*ACCELERATORS, *NAMED_AFTER_DOCUMENTS])
def machine(request: pytest.FixtureRequest) -> Machine:
    return load_hardware(shipped("hardware") / f"{request.param}.toml")


def test_every_shipped_file_is_tested_here() -> None:
    stems = {path.stem for path in shipped("hardware").glob("*.toml")}
    assert stems == {*ACCELERATORS, *NAMED_AFTER_DOCUMENTS}


def test_every_figure_says_where_it_comes_from(machine: Machine) -> None:
    assert machine.title
    assert machine.summary
    for name, figure in machine.figures.items():
        assert figure.kind in ORIGINS, name
        assert len(figure.source) > 12, name
        # Public sources stand with the version that was read; what has none is assumed.
        if figure.kind != "assumed":
            assert " @" in figure.source, name
        if "from memory" in figure.source or "no published figure" in figure.source:
            assert figure.kind == "assumed", name


def test_figures_are_in_the_vocabulary_s_units_and_domains(machine: Machine) -> None:
    for name, figure in machine.figures.items():
        if name in VOCABULARY:
            assert figure.units == VOCABULARY[name].units
            assert not VOCABULARY[name].outside(np.array(figure.value))


@pytest.mark.parametrize("name", ACCELERATORS)
def test_figures_are_of_a_plausible_size(name: str) -> None:
    for quantity, figure in load_hardware(name).figures.items():
        ends = [end for end in PLAUSIBLE if quantity.endswith(end)]
        assert ends, quantity
        low, high = PLAUSIBLE[max(ends, key=len)]
        assert low <= figure.value <= high, quantity


@pytest.mark.parametrize("name", FACTS)
def test_figures_are_the_data_sheet_s(name: str) -> None:
    figures = load_hardware(name).figures
    names = tuple(
        "intra_bandwidth gpus_per_node inter_bandwidth memory_capacity peak_flops_bf16".split()
    )
    facts = [
        GIB * float(fact.split()[0]) if isinstance(fact, str) else fact for fact in FACTS[name]
    ]
    assert [figures[quantity].value for quantity in names] == facts


def test_a_machine_that_is_like_another_says_so_of_its_figures() -> None:
    cloud, figures = load_hardware("aws-p5").figures, load_hardware("dgx-h100").figures
    differing = {name for name in figures if cloud[name].value != figures[name].value}
    assert set(cloud) == {*figures, "host_slowdown"}
    assert differing == {"nodes_per_leaf", "gpu_hour_price"}
    taken = {name for name, figure in cloud.items() if figure.source.startswith("as on dgx-h100: ")}
    assert set(figures) - taken == set(
        "inter_bandwidth nics_per_node nodes_per_leaf gpu_hour_price".split()
    )
    # A price is of the one who lets the machine.
    assert "gpu_hour_price" not in load_hardware("gcp-a3-mega").figures
    assert {figure.kind for name, figure in cloud.items() if name in taken} == {
        "assumed",
        "specification",
    }
    assert load_hardware("hgx-h800").figures["intra_bandwidth"].value == 200e9
    assert load_hardware("aws-p5").fabric == "efa"


def test_every_rank_has_its_share_of_the_cards(machine: Machine) -> None:
    ranks, cards = (machine.figures[f"{name}_per_node"].value for name in ("gpus", "nics"))
    assert (ranks / cards).is_integer()


def test_kinds_of_links() -> None:
    assert {name: load_hardware(name).scale_up_kind for name in ACCELERATORS} == {
        **dict.fromkeys(ACCELERATORS, "switch"),
        **{name: "torus" for name in ACCELERATORS if name.startswith("tpu")},
        "trainium2": "torus",
        "gaudi3": "fully_connected",
        "gh200": "fully_connected",
        "mi300x": "fully_connected",
        "mi325x": "fully_connected",
        "mi355x": "fully_connected",
    }
    tori = {n: load_hardware(n).torus_dimensions for n in ACCELERATORS if n.startswith("tpu")}
    assert tori == {"tpu-7x": 3, "tpu-v4": 3, "tpu-v5e": 2, "tpu-v5p": 3, "tpu-v6e": 2}
    # NVSwitch reduces from its third generation (Hopper) on.
    reduces = {n for n in ACCELERATORS if load_hardware(n).in_network == ("nvls",)}
    newer = {"aws-p6-b200", "aws-p6-b300", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72"}
    hopper = {"aws-p5", "aws-p5en", "dgx-h100", "dgx-h200", "gcp-a3-mega", "grand-teton-h100"}
    assert reduces == {*hopper, "hgx-h20", "hgx-h800"} | newer
    assert all(load_hardware(n).in_network in {(), ("nvls",)} for n in ACCELERATORS)


def test_an_achieved_matrix_multiplication_is_below_the_peak(machine: Machine) -> None:
    for name, figure in machine.figures.items():
        if name.startswith("peak_measured_matmul_flops"):
            peak = machine.figures[name.replace("peak_measured_matmul", "peak")].value
            assert 0.4 * peak < figure.value < peak


def test_the_notebook_s_constants_are_those_of_its_code() -> None:
    # alpha_nv, beta_nv, epb_nv = 0.2e-6, 1/90e9, 5e-12; the same for InfiniBand.
    notebook = load_hardware("hop-energy-notebook").figures
    names = ("latency", "bandwidth", "energy_per_bit")
    assert [notebook[f"intra_{name}"].value for name in names] == [0.2e-6, 90e9, 5e-12]
    assert [notebook[f"inter_{name}"].value for name in names] == [2e-6, 50e9, 25e-12]
    corrected = load_hardware("hop-energy-notebook-corrected").figures
    differing = {name for name in notebook if notebook[name].value != corrected[name].value}
    assert differing == {"intra_bandwidth"}
    assert corrected["intra_bandwidth"].value == 450e9


def test_names_and_paths_find_the_same_file() -> None:
    by_name = load_hardware("dgx-h100")
    assert by_name.name == "dgx-h100"
    assert load_hardware(by_name.path) == load_hardware(str(by_name.path)) == by_name


def test_the_user_s_folders_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = find_spec("hardware", "dgx-h100").read_text(encoding="utf-8")
    own, here = tmp_path / "own", tmp_path / "specs" / "hardware"
    for folder, title in ((own, "Own"), (here, "Here")):
        folder.mkdir(parents=True)
        (folder / "dgx-h100.toml").write_text(text.replace("NVIDIA DGX H100", title))
    (here / "ours.toml").write_text(text.replace('"dgx-h100"', '"ours"'))
    monkeypatch.chdir(tmp_path)
    assert load_hardware("dgx-h100").title == "Here"
    assert load_hardware("dgx-h100", (own,)).title == "Own"
    assert load_hardware("ours").name == "ours"
    assert set(hardware_names()) == {*ACCELERATORS, *NAMED_AFTER_DOCUMENTS, "ours"}
    assert list(hardware_names((str(own),))) == sorted(hardware_names())


def test_sweeps_are_found_by_name_and_path(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('title = "Mine"')
    assert find_spec("sweeps", "mine", (tmp_path,)) == tmp_path / "mine.toml"
    assert find_sweep(tmp_path / "mine.toml") == tmp_path / "mine.toml"
    assert "mine" in spec_names("sweeps", (tmp_path,))
    assert read_toml(find_spec("sweeps", "mine", (tmp_path,))) == {"title": "Mine"}
    with pytest.raises(InputError, match=r"sweep = 'mind': no such sweep; did you mean"):
        find_spec("sweeps", "mind", (tmp_path,))


def test_a_file_of_another_name_isn_t_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("title: Mine")
    with pytest.raises(InputError, match=r"^sweep = 'mine.yaml': isn't a TOML file by its name"):
        find_sweep("mine.yaml")


def test_shipped_is_the_checkout_s_or_the_wheel_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "__file__", str(tmp_path / "sweeps" / "spec" / "files.py"))
    with pytest.raises(RunError, match="specs/hardware is missing"):
        shipped("hardware")
    inside = tmp_path / "sweeps" / "specs" / "hardware"
    inside.mkdir(parents=True)
    folder = tmp_path / "specs" / "hardware"
    folder.mkdir(parents=True)
    # Some folder called specs beside an installed package isn't ours.
    assert shipped("hardware") == inside
    (tmp_path / "pyproject.toml").touch()
    assert shipped("hardware") == folder


def test_a_machine_is_read_without_heavy_imports() -> None:
    code = (
        "import sys; from sweeps.spec.catalog import load_hardware\n"
        "load_hardware('dgx-h100')\n"
        "sys.exit(any(m in sys.modules for m in ('pydantic', 'xarray')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prices_have_a_date_and_a_source_and_say_how_old_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1803513600")  # 25 February 2027
    priced = [
        one for one in map(load_hardware, hardware_names()) if "gpu_hour_price" in one.figures
    ]
    assert {one.name for one in priced} == set(
        (
            "aws-p4d aws-p5 aws-p5en aws-p6-b200 dgx-a100 dgx-b200 dgx-h100 dgx-h200 gb200-nvl72 "
            "hgx-h800 l40s rtx-pro-6000 tpu-v5e tpu-v5p"
        ).split()
    )
    for one in priced:
        assert one.figures["gpu_hour_price"].date
        assert one.figures["gpu_hour_price"].origin.source.startswith(
            f"of {one.figures['gpu_hour_price'].date}: "
        )
    assert "6.88 USD/h for a GPU of aws-p5, is of 2026-11, 3 months old" in price_words(
        [load_hardware("aws-p5")]
    )
    assert price_words([load_hardware("grand-teton-h100")]) == ""
    several = price_words(map(load_hardware, ("aws-p5", "grand-teton-h100", "tpu-v5p")))
    assert "6.88 USD/h for a GPU of aws-p5 (of 2026-11, 3 months old); 4.2 USD/h" in several
    assert "sweeps catalog aws-p5 tpu-v5p --show sources" in several
    text = 'name = "ours"\ntitle = "Ours"\nlike = "dgx-h100"\n[device]\ngpu_hour_price = { value = '
    path = tmp_path / "ours.toml"
    path.write_text(f'{text}"3 USD/h", kind = "assumed", source = "a contract" }}\n')
    assert "is without a date" in price_words([load_hardware(path)])
    path.write_text(f'{text}"3 USD/h", date = "May", kind = "assumed", source = "a contract" }}\n')
    with pytest.raises(InputError, match="not a year and month"):
        load_hardware(path)
