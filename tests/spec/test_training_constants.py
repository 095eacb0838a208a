"""Constants of a step's time: where they come from, what holds where a file is silent."""

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from overhead.memory.quantities import RECIPES
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.origin import Origin
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.fields import ORIGINS, Figure
from sweeps.spec.files import shipped
from sweeps.spec.framework import (
    ATTENTION_RULE,
    INPUT_WIDTHS,
    MACHINE_RULE,
    RECIPE_RULE,
    TYPICAL_BEST,
    training_constants,
)
from sweeps.spec.known import SETTINGS, uncalibrated_device, unknown_settings
from sweeps.spec.machine import KERNELS, PRECISIONS, Machine
from sweeps.validate.predict import Constants
from tests.each import each
from tests.tables import examples

MEGATRON = load_framework("megatron-lm")
# What a step takes of a machine and of the software, whatever these are.
EVERY = set(
    (
        "peak_flops attention_peak_flops peak_measured_matmul_flops matmul_efficiency "
        "matmul_min_time matmul_time_per_k memory_bandwidth memory_efficiency memory_capacity "
        "attention_efficiency matmul_input_bytes weight_bytes gradient_bytes optimizer_bytes "
        "activation_bytes gathered_bytes host_launch_time exposed_launch_fraction "
        "elementwise_factor loss_bytes logit_bytes tp_overlap cp_overlap ep_overlap dp_overlap "
        "overlap_slowdown forward_operations backward_operations recompute_operations "
        "count_end_layers unfused_expert_bias unfused_operations dropout step_overhead "
        "tp_gradient_overlap power idle_power_fraction gpu_hour_price sms "
        "tile_quantization_loss output_matmul_flops host_bandwidth host_update_bandwidth "
        "host_cores core_update_bandwidth host_memory_capacity attention_speedup "
        "weight_copy_bytes tp_gather_byte_ratio grouped_matmul_rate_ratio bf16_layers "
        "grouped_exposed_fraction "
        "bf16_attention bf16_experts attention_tile eager_launch_fraction expert_casts "
        "unsharded_in_pipeline placeholder_bytes early_stop gradient_accumulation_fusion "
        "sharding_copy_efficiency"
    ).split()
)
MACHINES = sorted(path.stem for path in shipped("hardware").glob("*.toml"))
# Sustained rates that step times were fitted with, as shares of the peak, by precision and kernel.
FITTED = {
    ("dgx-a100", "bf16"): 0.772,
    ("dgx-h100", "bf16"): 0.668,
    ("dgx-h100", "fp8"): 0.600,
    ("grand-teton-h100", "bf16"): 0.553,
    ("grand-teton-h100", "fp8"): 0.546,
    ("dgx-b200", "bf16"): 0.452,
    ("dgx-b200", "fp8"): 0.539,
    ("dgx-b200", "fp4"): 0.410,
    ("gb200-nvl72", "bf16"): 0.525,
    ("gb200-nvl72", "fp8"): 0.511,
    ("gb200-nvl72", "fp4"): 0.434,
    ("gb300-nvl72", "fp4"): 0.442,
    ("tpu-7x", "bf16"): 0.640,
    ("tpu-v6e", "bf16"): 0.650,
}


def value(machine: Machine | str, name: str, precision: str = "bf16", **more: str) -> float:
    loaded = load_hardware(machine) if isinstance(machine, str) else machine
    return training_constants(loaded, MEGATRON, precision=precision, **more)[name].value


def without(name: str, *dropped: str, **changed: float) -> Machine:
    """Return a machine without some figures, and with others of another value."""
    machine = load_hardware(name)
    figures = {n: figure for n, figure in machine.figures.items() if n not in dropped}
    figures |= {n: replace(figures[n], value=new) for n, new in changed.items()}
    return replace(machine, figures=figures)


@each("name", MACHINES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_constant_has_a_value_and_an_origin(name: str, precision: str) -> None:
    machine = load_hardware(name)
    for kernel in KERNELS:
        origins = training_constants(
            machine, MEGATRON, precision=precision, attention_kernel=kernel
        )
        assert set(origins) == EVERY
        # In 8 bits Megatron-LM's tensor-parallel ranks gather what they multiply.
        share = origins["matmul_input_bytes"].value / origins["activation_bytes"].value
        assert origins["tp_gather_byte_ratio"].value == min(share, 1.0)
        for quantity, origin in origins.items():
            number = origin.value
            assert isinstance(number, float)
            if math.isnan(number):
                assert origin.words == f"not known ({name})", quantity
                continue
            assert origin.kind in ORIGINS, quantity
            assert len(origin.source) > 9, quantity
            if quantity in VOCABULARY:
                assert VOCABULARY[quantity].minimum <= number <= VOCABULARY[quantity].maximum


@pytest.mark.parametrize(("name", "precision"), FITTED)
def test_fitted_rates_are_the_published_shares_of_the_peak(name: str, precision: str) -> None:
    peak, best, share = (
        value(name, quantity, precision)
        for quantity in ("peak_flops", "peak_measured_matmul_flops", "matmul_efficiency")
    )
    assert best * share / peak == pytest.approx(FITTED[name, precision], abs=0.002)
    figure = load_hardware(name).figures[f"matmul_efficiency_{precision}"]
    assert figure.kind == "measured"
    assert "fitted" in figure.source


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_sustained_beats_a_peak(name: str) -> None:
    for precision in PRECISIONS:
        best, peak = (
            value(name, n, precision) for n in ("peak_measured_matmul_flops", "peak_flops")
        )
        assert math.isnan(peak) == math.isnan(best)
        assert math.isnan(peak) or 0.0 < best < peak
        for kernel in KERNELS:
            share = value(name, "attention_efficiency", precision, attention_kernel=kernel)
            assert math.isnan(share) or 0.0 < share < 1.0
        share = value(name, "matmul_efficiency", precision)
        assert math.isnan(share) == math.isnan(peak)
        assert math.isnan(share) or 0.0 < share < 1.0


def test_what_a_machine_cannot_compute_in_is_not_known() -> None:
    origins = training_constants(load_hardware("dgx-a100"), MEGATRON, precision="fp8")
    for quantity in ("peak_flops", "peak_measured_matmul_flops", "matmul_efficiency"):
        assert math.isnan(origins[quantity].value)
        assert origins[quantity].words == "not known (dgx-a100)"
    # Attention is in 16 bits all the same, and the bytes of a parameter are no machine's.
    assert origins["attention_peak_flops"].value == 312e12
    assert origins["weight_bytes"].value == 2.0


def test_the_rule_holds_where_a_file_is_silent() -> None:
    bare = without(
        "dgx-h100", "peak_measured_matmul_flops_bf16", "matmul_efficiency_bf16", "memory_efficiency"
    )
    origins = training_constants(bare, MEGATRON)
    assert origins["peak_measured_matmul_flops"].value == pytest.approx(TYPICAL_BEST.value * 989e12)
    assert origins["peak_measured_matmul_flops"].text.startswith("assumed: 0.74 of the peak, ")
    for quantity in ("matmul_efficiency", "memory_efficiency"):
        rule = MACHINE_RULE[quantity]
        assert origins[quantity] == rule.origin
    for kernel, rule in ATTENTION_RULE.items():
        machine = without("dgx-h100", f"attention_efficiency_{kernel}")
        assert value(machine, "attention_efficiency", attention_kernel=kernel) == rule.value


def test_the_typical_best_is_the_median_of_the_catalogue() -> None:
    ratios = set()  # machines with the same chip count once
    for name in MACHINES:
        figures = load_hardware(name).figures
        for precision in ("bf16", "fp8"):
            best = figures.get(f"peak_measured_matmul_flops_{precision}")
            if best is not None and best.kind == "measured":
                ratios.add(best.value / figures[f"peak_flops_{precision}"].value)
    assert len(ratios) > 10
    assert TYPICAL_BEST.value == pytest.approx(statistics.median(ratios), abs=0.01)


def test_narrow_formats_come_no_nearer_to_their_peak_than_16_bits() -> None:
    """What AMD's GPUs reach in bf16 holds in fp8, which isn't measured; measured ratios say so."""
    for name, precision in (("mi300x", "fp8"), ("mi355x", "fp8"), ("mi355x", "fp4")):
        figures = load_hardware(name).figures
        share = figures["peak_measured_matmul_flops_bf16"].value / figures["peak_flops_bf16"].value
        assert share < TYPICAL_BEST.value
        expected = share * figures[f"peak_flops_{precision}"].value
        assert value(name, "peak_measured_matmul_flops", precision) == pytest.approx(expected)
    # A machine that is better in 16 bits is taken as a typical one.
    peak = load_hardware("tpu-7x").figures["peak_flops_fp8"].value
    assert value("tpu-7x", "peak_measured_matmul_flops", "fp8") == pytest.approx(
        TYPICAL_BEST.value * peak
    )
    ratios = []
    for name in ("dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gaudi3"):
        figures = load_hardware(name).figures
        shares = [
            figures[f"peak_measured_matmul_flops_{p}"].value / figures[f"peak_flops_{p}"].value
            for p in ("fp8", "bf16")
        ]
        ratios.append(shares[0] / shares[1])
    assert statistics.mean(ratios) == pytest.approx(0.96, abs=0.01)


def test_a_best_of_one_machine_is_not_fitted_twice() -> None:
    """Rates that a file derives from the typical best come out as the rule has them."""
    for name in ("dgx-b200", "gb200-nvl72", "gb300-nvl72"):
        figures = load_hardware(name).figures
        peak, best = (
            figures[f"{n}_fp4"].value for n in ("peak_flops", "peak_measured_matmul_flops")
        )
        assert best == pytest.approx(TYPICAL_BEST.value * peak)


def test_both_formats_of_16_bits_are_as_fast() -> None:
    for quantity in ("peak_measured_matmul_flops", "matmul_efficiency"):
        origins = training_constants(load_hardware("dgx-a100"), MEGATRON, precision="fp16")
        assert origins[quantity].value == value("dgx-a100", quantity)
        assert origins[quantity].source.endswith("(of bf16, which has the same peak)")
    # Where the peaks differ one tells nothing of the other.
    slower = without("dgx-a100", peak_flops_fp16=156e12)
    assert value(slower, "peak_measured_matmul_flops", "fp16") == pytest.approx(
        TYPICAL_BEST.value * 156e12
    )
    assert value(slower, "matmul_efficiency", "fp16") == MACHINE_RULE["matmul_efficiency"].value


def test_attention_is_in_16_bits_at_least() -> None:
    for precision, peak in dict(
        bf16=989e12, fp16=989e12, fp8=989e12, tf32=494.5e12, fp32=67e12
    ).items():
        assert value("dgx-h100", "attention_peak_flops", precision) == peak
    only_fp16 = without("dgx-h100", "peak_flops_bf16")
    assert value(only_fp16, "attention_peak_flops", "fp8") == 989e12


def test_unfused_attention_is_a_share_of_what_products_sustain() -> None:
    asked = {"attention_kernel": "unfused"}
    sustained = load_hardware("dgx-a100").figures["matmul_efficiency_bf16"].value
    assert value("dgx-a100", "attention_efficiency", **asked) == pytest.approx(
        0.6 * sustained * 271.2 / 312
    )
    # In 8 bits too it is the rate of 16 bits.
    for precision in ("fp8", "fp4"):
        eight = value("dgx-b200", "attention_efficiency", precision, **asked)
        assert eight == value("dgx-b200", "attention_efficiency", **asked)
    given = load_hardware("dgx-h100")
    figure = Figure(0.3, "1", "measured", "this test")
    given = replace(given, figures={**given.figures, "attention_efficiency_unfused": figure})
    assert value(given, "attention_efficiency", **asked) == 0.3


def test_recipes_follow_the_precision_the_framework_and_the_user() -> None:
    machine = load_hardware("dgx-b200")
    names = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")

    def found(framework: str, precision: str, recipe: str | None = None) -> list[float]:
        constants = training_constants(
            machine, load_framework(framework), precision=precision, recipe=recipe
        )
        return [constants[n].value for n in (*names, "matmul_input_bytes", "gathered_bytes")]

    assert found("megatron-lm", "bf16") == [2, 2, 12, 2, 2, 2]
    assert found("megatron-lm", "fp16") == [2, 2, 16, 2, 2, 2]
    assert found("megatron-lm", "fp32") == [4, 4, 8, 4, 4, 4]
    assert found("megatron-lm", "fp8") == [2, 2, 12, 2, 1, 2]
    assert found("megatron-lm+fp32_gradients", "fp8") == [2, 4, 12, 2, 1, 2]
    assert found("megatron-lm+fp8_parameters", "fp8") == [1, 2, 12, 2, 1, 1]
    # Options that set different bytes act together, whichever stands first.
    for first, second, sizes in (
        ("fp8_parameters", "fp32_gradients", [1, 4, 12]),
        ("fp8_parameters", "bf16_moments", [1, 2, 8]),
        ("fp8_parameters", "muon", [1, 2, 8]),
    ):
        for options in (f"{first}+{second}", f"{second}+{first}"):
            assert found(f"megatron-lm+{options}", "fp8") == [*sizes, 2, 1, 1]
    both = "megatron-lm+fp32_gradients+bf16_moments"
    assert found(both, "bf16") == [2, 4, 8, 2, 2, 2]
    assert found(f"{both}+fp8_parameters", "fp8") == [1, 4, 8, 2, 1, 1]
    assert found("megatron-lm", "fp4")[4] == 0.5625
    assert found("torchtitan", "fp8") == [4, 4, 8, 2, 1, 2]
    assert found("fsdp-llmfoundry+pure", "bf16") == [4, 2, 8, 2, 2, 2]
    # What the user names comes before what the framework has.
    assert found("torchtitan", "bf16", "bf16_adam") == [2, 2, 4, 2, 2, 2]


def test_every_precision_has_a_recipe() -> None:
    assert set(RECIPE_RULE) == set(INPUT_WIDTHS) == set(PRECISIONS)
    assert set(RECIPE_RULE.values()) <= set(RECIPES)
    for precision, name in RECIPE_RULE.items():
        assert RECIPES[name].matmul_input_bytes >= INPUT_WIDTHS[precision]


def test_a_framework_s_kernels_can_be_slower_than_the_machine() -> None:
    machine = load_hardware("grand-teton-h100")
    plain = training_constants(machine, load_framework("torchtitan"), precision="fp8")
    rowwise = load_framework("torchtitan+rowwise_fp8")
    by_rows = training_constants(machine, rowwise, precision="fp8")
    titan = load_framework("torchtitan")
    told = training_constants(machine, titan, precision="fp8", fp8_scaling="row")
    assert {n: o.value for n, o in told.items()} == {n: o.value for n, o in by_rows.items()}
    back = training_constants(machine, rowwise, precision="fp8", fp8_scaling="tensor")
    assert {n: o.value for n, o in back.items()} == {n: o.value for n, o in plain.items()}
    assert by_rows["matmul_efficiency"].value == 0.5 * plain["matmul_efficiency"].value
    assert "; times measured: fitted" in by_rows["matmul_efficiency"].source
    assert "matmul_share" not in by_rows


def test_a_host_can_be_slower_than_those_that_launches_were_timed_on() -> None:
    times = {
        name: training_constants(load_hardware(name), MEGATRON)["host_launch_time"]
        for name in ("dgx-b200", "gb200-nvl72", "gb300-nvl72")
    }
    slow = load_hardware("gb200-nvl72").figures["host_slowdown"]
    assert 1.2 < slow.value < 2.5  # A launch alone, and a linear layer's forward in Python
    for name in ("gb200-nvl72", "gb300-nvl72"):
        assert times[name].value == pytest.approx(slow.value * times["dgx-b200"].value)
        assert times[name].source.endswith(f"; times {slow.origin.text}")
    assert times["dgx-b200"].source == MEGATRON.on("blackwell")["host_launch_time"].source


def test_the_kernel_is_the_framework_s_unless_it_is_given() -> None:
    machine = load_hardware("dgx-h100")
    actual = {
        name: training_constants(machine, load_framework(name))["attention_efficiency"].value
        for name in ("megatron-lm", "torchtitan", "fsdp-llmfoundry")
    }
    assert actual == {"megatron-lm": 0.66, "torchtitan": 0.35, "fsdp-llmfoundry": 0.21}
    assert value(machine, "attention_efficiency", attention_kernel="flash_3") == 0.65


def test_a_framework_s_figures_come_through() -> None:
    machine = load_hardware("dgx-a100")
    origins = training_constants(
        machine, load_framework("megatron-deepspeed-2022"), precision="fp16"
    )
    assert origins["host_launch_time"].value == 42e-6
    assert origins["host_launch_time"].text.startswith("measured: fitted on step times")
    assert origins["host_launch_time"].owner == "megatron-deepspeed-2022"
    assert origins["power"] == machine.figures["power"].origin.of("dgx-a100")
    assert origins["power"].value == 400.0


def test_prices_and_powers_are_told_where_they_are_known(tmp_path: Path) -> None:
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    price = 'price = { value = "2.5 USD/h", kind = "assumed", source = "a contract of ours" }\n'
    (tmp_path / "ours.toml").write_text(
        re.sub(r"price = .*\n", price, text.replace('"dgx-h100"', '"ours"')), encoding="utf-8"
    )
    ours = training_constants(load_hardware(tmp_path / "ours.toml"), MEGATRON)
    assert ours["gpu_hour_price"] == Origin(2.5, "assumed", "a contract of ours", "ours")
    assert math.isnan(value("mi300x", "gpu_hour_price"))
    assert math.isnan(value("tpu-v5p", "power"))
    assert value("tpu-v4", "idle_power_fraction") == 0.47


def test_unknown_names_are_refused_together() -> None:
    with pytest.raises(InputError) as error:
        training_constants(
            load_hardware("dgx-h100"),
            MEGATRON,
            precision="bf61",
            attention_kernel="flash2",
            recipe="fsdp_adm",
        )
    assert error.value.faults == (
        "precision = 'bf61': unknown; did you mean 'bf16'?",
        "attention_kernel = 'flash2': unknown; did you mean 'flash_2' or 'flash_3'?",
        "recipe = 'fsdp_adm': unknown; did you mean 'fsdp_adam' or 'fp8_adam'?",
    )


@pytest.mark.parametrize(("machine", "precision", "unseen", "said"), examples(__file__, "rates"))
def test_which_rates_were_compared_with_runs(
    machine: str, precision: str, unseen: float, said: str
) -> None:
    """Of the precision itself, and the same for a user's question and for a published row."""
    origin = uncalibrated_device(load_hardware(machine), precision)
    assert origin.value == unseen
    assert said in str(origin.source)
    labels = {"hardware": machine, "precision": precision, "framework": "megatron-lm"}
    assert Constants(()).of(labels, step=True)["uncalibrated_device"] == unseen


def test_a_framework_that_is_named_brings_its_kernel() -> None:
    assert unknown_settings(()) == list(SETTINGS)
    assert unknown_settings({"framework", "recompute", "precision"}) == []
    assert unknown_settings({"attention_kernel", "precision"}) == ["recompute", "framework"]
