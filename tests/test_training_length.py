"""Sequences that aren't given are as long as the model's publication says, and reports say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps as public
from sweeps.errors import InputError
from sweeps.search.request import read_request
from sweeps.spec.catalog import load_model, model_names
from sweeps.spec.model import USUAL_LENGTH
from tests.cli_runner import Runner
from tests.each import each
from tests.tables import examples


@each("name", model_names())
def test_what_publications_say_is_whole_and_sourced(name: str) -> None:
    trained = load_model(name).trained
    for figure in trained.values():
        assert figure.source
        assert figure.value >= 1.0
    batch, length = trained.get("tokens_per_step"), trained.get("sequence_length")
    if batch is not None:
        assert length is not None, "a batch in sequences of unknown length"
        assert batch.value >= length.value


STEP: dict[str, Any] = {"hardware": "dgx-h100", "tp": 8, "dp": 2, "zero_stage": 1}


def test_a_sweep_takes_the_model_s_length_and_says_whose_it_is() -> None:
    wanted = ["step_time", "peak_memory", "mfu"]
    taken = public.sweep(wanted, model="llama3-8b", **STEP)
    given = public.sweep(wanted, model="llama3-8b", sequence_length=8192, **STEP)
    for name in wanted:
        assert taken[name].item() == given[name].item(), name
    origin = json.loads(taken.attrs["constants"])["sequence_length"]["origin"]
    assert '"owner": "llama3-8b"' in origin
    assert "sequences of 8,192 tokens" in origin


def test_each_model_of_several_has_its_own_length() -> None:
    wanted = ["step_time"]
    step_time = public.sweep(wanted, model=["llama3-8b", "llama2-7b"], **STEP).step_time
    for name, length in (("llama3-8b", 8192), ("llama2-7b", 4096)):
        alone = public.sweep(wanted, model=name, sequence_length=length, **STEP).step_time
        assert step_time.sel(model=name).item() == alone.item(), name
    with pytest.raises(InputError, match="sequence length in tokens"):
        public.sweep(wanted, model=["llama3-8b", "grok-1"], **STEP)


@pytest.mark.thorough
def test_a_model_beside_others_is_as_alone() -> None:
    """Grok-1 has four norms in a layer, DeepSeek-V3.2 an index: what the others lack is usual."""
    models = ["llama3-8b", "grok-1", "deepseek-v3.2", "deepseek-v4-flash", "qwen3-next-80b-a3b"]
    wanted = ["step_time", "peak_memory"]
    step = {**STEP, "sequence_length": 4096, "memory_capacity": 1e13}
    dataset = public.sweep(wanted, model=models, **step)
    for name in models:
        alone = public.sweep(wanted, model=name, **step)
        for one in wanted:
            assert dataset[one].sel(model=name).item() == alone[one].item(), (name, one)


def test_analysis_says_the_length_that_it_takes(cli: Runner) -> None:
    line = "analysis --model llama3-8b --hardware dgx-h100 --gpus 8 --tp 8"
    taken = cli(f"{line} --show defaults").out
    assert "of 8192 tokens" in taken
    assert "on over 15T tokens (llama3-8b)\n      sequence_length = 8192\n" in taken
    (first,), (second,) = (cli(f"{line} --json {more}").records for more in ("", "--seq-len 8192"))
    assert {k: v for k, v in first.items() if isinstance(v, float)} == {
        k: v for k, v in second.items() if isinstance(v, float)
    }


@pytest.mark.thorough
def test_plan_takes_it_and_the_usual_where_none_is_known(cli: Runner) -> None:
    line = "plan --hardware dgx-h100 --gpus 8 --batch-size 64"
    assert "--seq-len 8192 (as llama3-8b was trained)" in cli(f"{line} --model llama3-8b").out
    assert "Defaults: --seq-len 4096" in cli(f"{line} --model llama3.2-1b").out
    taken, given = (
        cli(f"{line} --model llama3-8b --json {more}").records for more in ("", "--seq-len 8k")
    )
    assert taken == given


def test_a_batch_in_tokens_has_sequences_of_the_model_s_length() -> None:
    asked = {"model": "llama3-8b,llama2-7b", "gpus": "8", "batch_tokens": 2**20}
    request = read_request(asked, folders=())
    counts = [point.constants["global_batch_size"] for point in request.points()]
    assert counts == [2**20 / 8192, 2**20 / 4096]
    assert [length.owner for length in request.lengths] == ["llama3-8b", "llama2-7b"]
    assert read_request({**asked, "sequence_length": 2048}).lengths == ()


@pytest.mark.thorough
def test_python_s_plans_take_it() -> None:
    asked: dict[str, Any] = {"model": "llama3-8b", "gpus": 8, "global_batch_size": 64, "tp": [1, 2]}
    taken, given = public.plan(**asked), public.plan(**asked, sequence_length=8192)
    assert taken.recommended is not None
    assert given.recommended is not None
    assert taken.recommended.key == given.recommended.key
    # Of a model without one it is what the command line takes.
    usual = public.plan(**{**asked, "model": "llama3.2-1b"})
    assert usual.search.request.first.constants["sequence_length"] == USUAL_LENGTH


@pytest.mark.parametrize(("table", "line"), examples(__file__, "trained"))
def test_a_model_file_s_training_is_checked(tmp_path: Path, table: str, line: str) -> None:
    text = Path(load_model("llama3-8b").path or "").read_text(encoding="utf-8")
    path = tmp_path / "own.toml"
    whole = text.replace('"llama3-8b"', '"own"').partition("[training]")[0]
    path.write_text(f"{whole}[training]\n{table}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert any(line in fault for fault in caught.value.faults)
    path.write_text(f'{whole}[training]\nkind = "measured"\nsource = "x"\nsequence_length = 512\n')
    assert np.isclose(load_model(path).trained["sequence_length"].value, 512)


def test_the_catalogue_tells_it(cli: Runner) -> None:
    out = cli("catalog llama3-405b").out
    assert "its training: The Llama 3 herd of models" in " ".join(out.split())
    assert "in a sequence of 8,192" in out
    assert "in a sequence of 4,096" in cli("catalog grok-1").out
    assert "in a sequence of 512" in cli("catalog llama3-405b --seq-len 512").out
