"""``analyze_config``: one call for memory and communication, arrays in and out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import overhead
import sweeps
from overhead import AnalysisResult, Config, TopologyKind, analyze_config, build_topology
from overhead.communication.operation import DIMENSIONS
from overhead.communication.totals import OPERATIONS
from overhead.memory.quantities import PARTS
from sweeps.spec.catalog import load_hardware, load_model
from tests.overhead.memory_cases import stage_memory
from tests.overhead.usual import usual
from tests.tables import keyed

LLAMA = load_model("llama3-70b").shapes
FIELDS = keyed(
    "num_layers=layers hidden_size=hidden_size num_heads=heads num_kv_heads=kv_heads "
    "head_size=head_size ffn_size=ffn_size vocabulary_size=vocabulary_size gated_mlp=gated_mlp "
    "tied_embeddings=tied_embeddings"
)
SHAPES: dict[str, Any] = {field: LLAMA[name] for field, name in FIELDS.items()}
SIZES: dict[str, Any] = {"num_parameters": 70e9, "seq_length": 1024, "hidden_size": 4096}


def test_it_is_what_the_package_offers() -> None:
    assert {"Config", "analyze_config", "AnalysisResult"} <= set(overhead.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Confg'"):
        getattr(overhead, "Confg")  # noqa: B009


def test_defaults_are_a_machine_of_the_catalogue() -> None:
    figures = load_hardware("dgx-h100").figures
    plain = Config().given()
    for name in (
        *("intra_bandwidth", "intra_latency", "inter_bandwidth", "inter_latency"),
        "gpus_per_node",
    ):
        assert plain[name] == figures[name].value, name


def test_the_library_is_that_of_the_machine_unless_links_are_given() -> None:
    assert Config().labels()["library"] == "nccl"
    for name in ("bandwidth", "intra_latency", "inter_efficiency"):
        given: dict[str, Any] = {name: 0.5}
        assert Config(**given).labels()["library"] == "none", name
        assert Config(library="nccl", **given).labels()["library"] == "nccl"
    assert "collective_launch_time" in Config().given()
    assert "collective_launch_time" not in Config(library="none").given()


def test_data_parallelism() -> None:
    result = analyze_config(
        Config(
            num_gpus=8,
            topology_kind=TopologyKind.RING,
            dp_degree=8,
            num_parameters=70e9,
            library="none",
        )
    )
    assert isinstance(result, AnalysisResult)
    # 2 + 2 + 12 bytes of each of 70e9 parameters; activations aren't known.
    assert result.per_gpu_memory_bytes == 16 * 70e9
    assert not result.memory_is_whole
    assert result.memory["gradient_memory"] == 140e9
    assert set(result.collective_reports) == {"dp"}
    (report,) = result.collective_reports["dp"]
    assert report.operation.collective == "all_reduce"
    assert [report.ranks, report.nodes] == [8, 1]
    assert [report.forward_count, report.backward_count] == [0, 1]
    assert report.message_bytes == 140e9
    # Each of 14 steps moves an eighth at 450 GB/s.
    time = 14 * (0.8e-6 + 140e9 / 8 / 450e9)
    assert report.latency_s == pytest.approx(time, rel=1e-12)
    assert result.dp_allreduce_latency_s == report.latency_s
    assert result.total_comm_time_per_step_upper_bound_s == report.latency_s
    assert report.volume_bytes == pytest.approx(245e9)
    assert [result.gpus_per_node, result.num_nodes] == [8, 1]
    assert "data parallelism: " in result.summary
    assert "1120 GB" in result.summary


def test_without_parallelism() -> None:
    result = analyze_config(Config(num_parameters=70e9, topology_kind="ring"))
    assert result.collective_reports == {}
    assert result.total_comm_time_per_step_upper_bound_s == 0.0
    assert "no communication: nothing is split" in result.summary
    assert np.isnan(result.dp_allreduce_latency_s)


def test_a_total_needs_the_layers_where_it_depends_on_them() -> None:
    plan: dict[str, Any] = {"num_gpus": 8, "tp_degree": 2, "topology_kind": "switch"}
    config = analyze_config(Config(**plan, **SIZES))
    assert config.total_comm_time_per_step_upper_bound_s is None
    assert config.missing["communication_upper_bound"] == ("layers",)
    many = analyze_config(Config(**plan, **SIZES, num_layers=32))
    total = many.total_comm_time_per_step_upper_bound_s
    assert total is not None
    assert total == pytest.approx(sum(many.dimension_times.values()), rel=1e-12)
    assert many.dimension_times["tp"] == pytest.approx(32 * config.dimension_times["tp"], rel=1e-12)


def test_a_whole_model() -> None:
    plan: dict[str, Any] = {"tp_degree": 8, "pp_degree": 4, "dp_degree": 16, "zero_stage": 1}
    result = analyze_config(Config(**plan, **SHAPES, seq_length=8192, num_micro_batches=32))
    assert result.memory_is_whole
    assert set(result.memory) == set(PARTS)
    assert result.per_gpu_memory_bytes == pytest.approx(sum(result.memory.values()), rel=1e-12)
    given: dict[str, Any] = {"tp": 8, "pp": 4, "dp": 16, "zero_stage": 1, "num_micro_batches": 32}
    given |= {"sequence_length": 8192, "weight_bytes": 2, "gradient_bytes": 2}
    given |= {"optimizer_bytes": 12, "matmul_input_bytes": 2, "placeholder_bytes": 2}
    labels = {"schedule": "one_f_one_b"}
    alone = stage_memory({**usual("memory"), **LLAMA, **given}, labels)
    assert result.per_gpu_memory_bytes == pytest.approx(float(alone.peak_memory), rel=1e-12)
    assert set(result.collective_reports) == {"tp", "vocabulary", "pp", "dp"}
    for name, reports in result.collective_reports.items():
        assert {report.operation.dimension for report in reports} == {name}
        times = [report.forward_time_s + report.backward_time_s for report in reports]
        assert sum(times) == pytest.approx(float(result.dimension_times[name]), rel=1e-12)
        for one in reports:
            assert OPERATIONS[one.operation.name] is one.operation
            both = one.forward_count + one.backward_count
            assert one.forward_time_s == one.forward_count * one.latency_s
            if name != "pp":
                assert one.total_volume_bytes == pytest.approx(both * one.volume_bytes)


def test_a_time_is_that_of_the_collective_on_the_groups_network() -> None:
    config = Config(
        num_gpus=16, tp_degree=4, **SIZES, num_layers=2, topology_kind="torus", library="none"
    )
    result = analyze_config(config)
    for reports in result.collective_reports.values():
        for report in reports:
            inside = report.ranks <= report.members_in_node
            network = build_topology(
                "torus",
                report.ranks,
                bandwidth=450e9 if inside else 50e9,
                latency=0.8e-6 if inside else 2.7e-6,
            )
            alone = overhead.collective(
                report.operation.collective, report.message_bytes, network, algorithm="nccl"
            )
            assert report.latency_s == pytest.approx(float(alone.latency_s), rel=1e-12)
            assert report.volume_bytes == pytest.approx(float(alone.volume_bytes), rel=1e-12)


@pytest.mark.parametrize("topology", ["ring", "switch", "hierarchical", "torus"])
def test_a_command_takes_the_same_defaults(topology: str) -> None:
    ours = analyze_config(Config(num_gpus=32, num_parameters=70e9, topology_kind=topology))
    (report,) = ours.collective_reports["dp"]
    names = {"time": "latency_s", "energy": "energy_j", "sent_bytes": "volume_bytes"}
    answer = {"topology": topology, "world_size": 32, "parameters": 70e9}
    dataset = sweeps.sweep([report.operation.quantity(name) for name in names], **answer)
    for name, field in names.items():
        assert float(getattr(report, field)) == float(dataset[report.operation.quantity(name)])


def test_an_operation_costs_the_same_alone_and_in_a_step() -> None:
    """64 MiB gathered on 8 H100, with a library's profile and by links alone."""
    size = 2.0**26
    charged = {}
    for library in ("nccl", "none"):
        config = Config(
            num_gpus=8,
            zero_stage=3,
            num_parameters=size / 2,
            topology_kind="switch",
            algorithm="ring",
            library=library,
        )
        (gather,) = (
            report
            for report in analyze_config(config).collective_reports["dp"]
            if report.operation.collective == "all_gather"
        )
        assert float(gather.message_bytes) == size
        charged[library] = float(gather.latency_s)
    assert charged["none"] == pytest.approx(136.1e-6, rel=1e-3)
    for library, time in charged.items():
        network = replace(build_topology("switch", 8, intra_bandwidth=450e9), library=library)
        alone = overhead.collective("all_gather", size, network, algorithm="ring")
        assert float(alone.latency_s) == time


def test_every_number_may_be_an_array() -> None:
    axes: dict[str, Any] = {
        "tp_degree": np.array([1, 2, 4])[:, None, None],
        "zero_stage": np.array([0, 3])[:, None],
        "inter_bandwidth": np.array([25e9, 50e9]),
    }
    base: dict[str, Any] = {"num_gpus": 16, **SIZES, "num_layers": 4}
    whole = analyze_config(Config(**base, **axes))
    total = whole.total_comm_time_per_step_upper_bound_s
    assert total is not None
    assert total.shape == (3, 2, 2)
    assert whole.per_gpu_memory_bytes.shape == (3, 2, 1)  # no bandwidth matters to it
    for i, tp in enumerate((1, 2, 4)):
        for j, stage in enumerate((0, 3)):
            for k, bandwidth in enumerate((25e9, 50e9)):
                config = analyze_config(
                    Config(**base, tp_degree=tp, zero_stage=stage, inter_bandwidth=bandwidth)
                )
                assert config.total_comm_time_per_step_upper_bound_s == total[i, j, k]
                assert config.per_gpu_memory_bytes == whole.per_gpu_memory_bytes[i, j, 0]
    assert " to " in whole.summary


def test_what_cannot_be_among_many_is_masked() -> None:
    result = analyze_config(
        Config(num_gpus=8, dp_degree=[8, 4, 2], tp_degree=[1, 2, 2], **SIZES, num_layers=2)
    )
    np.testing.assert_array_equal(result.valid, [True, True, False])
    assert [fault.requirement.fault for fault in result.faults] == ["product_of_degrees"]
    np.testing.assert_array_equal(np.isnan(result.per_gpu_memory_bytes), ~result.valid)
    for time in result.dimension_times.values():
        shown = np.broadcast_to(time, 3)
        assert np.isnan(shown[2])
        assert np.isfinite(shown[:2]).all()


def test_sides_of_a_mesh() -> None:
    plan: dict[str, Any] = keyed("topology_kind=torus num_gpus=16 num_parameters=7e9 dp_degree=16")
    link: dict[str, Any] = {"bandwidth": 1e9, "latency": 1e-3}
    times = []
    for sides in ((4, 4), (16, 1), (2, 8)):
        config = Config(**plan, **link, mesh_nx=sides[0], mesh_ny=sides[1])
        network = build_topology("torus", 16, mesh_nx=sides[0], mesh_ny=sides[1], **link)
        alone = overhead.collective("all_reduce", 14e9, network, algorithm="nccl")
        answer = analyze_config(config).dp_allreduce_latency_s
        assert answer == pytest.approx(float(alone.latency_s), rel=1e-12)
        times.append(float(answer))
    assert len(set(times)) == 3
    square = analyze_config(Config(**plan, **link)).dp_allreduce_latency_s
    assert square == pytest.approx(times[0], rel=1e-12)


def test_dimensions_that_there_are_not_send_nothing() -> None:
    result = analyze_config(Config(dp_degree=8, num_parameters=7e9))
    assert set(result.dimension_times) == set(DIMENSIONS)
    for name, time in result.dimension_times.items():
        assert (time > 0.0) == (name == "dp")
    split = analyze_config(Config(cp_degree=4, **SIZES, context_parallel="ring"))
    assert {report.operation.name for report in split.collective_reports["cp"]} == {"cp_ring"}
