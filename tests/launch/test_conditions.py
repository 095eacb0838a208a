"""Conditions of shell scripts: what is decided is what bash decides; the rest isn't known."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import sweeps
from sweeps.launch.shell import Script, read_script

SET = 'MODE=fast; N=3; EMPTY=""; FILE=${FILE:-none}\n'
BODIES = [
    'if [ "$MODE" = fast ]; then A=1; else A=2; fi',
    "if [[ $MODE == f* && $N -gt 2 ]]; then A=1; elif [ $N = 3 ]; then A=2; fi",
    'if [[ "$MODE" == "f*" ]]; then A=1; else A=2; fi',
    "if [[ $MODE != slow || -n $EMPTY ]]; then A=1; fi; B=2",
    'if [ -z "$EMPTY" ] && [ "$N" -le 2 ]; then A=1; elif test "$N" -ge 3; then A=2; else A=3; fi',
    'if ! [ "$MODE" == slow ]; then A=1; else A=2; fi',
    '[ "$MODE" = fast ] && A=8 || A=1',
    '[ "$MODE" = slow ] && A=8 || A=1',
    "[[ $N -eq 3 ]] || A=9; B=1",
    "if [ $N -lt 3 ]; then for i in 1 2; do A=1; done; case $N in 3) A=2;; esac; fi; B=4",
    'if [ "$MODE" = fast ]; then if [ $N = 4 ]; then A=1; else A=2; fi; else A=3; fi',
    'if [ "$FILE" != none ]; then A=1; else A=2; fi',
    '[ -n "$EMPTY" ] && [ $N = 3 ] && A=1; B=2',
    'A=1\nif [ "$MODE" = slow ]; then A=2; fi',
    '[ "$MODE" = slow ] && { A=1; B=2; }; [ $N = 3 ] && { B=3; }',
    'if [ "x$MODE" = "xfast" -a "$N" = 3 ]; then A=1; fi',
]


@pytest.mark.parametrize("body", BODIES)
def test_conditions_come_to_what_bash_makes_of_them(body: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    text = f"{SET}{body}\n"
    shown = subprocess.run(
        [bash, "-c", f'{text}echo "$A,$B"'], capture_output=True, text=True, check=True, env={}
    )
    found = read_script(text)
    assert not {"A", "B"} & found.unknown.keys()
    assert f"{found.environment.get('A', '')},{found.environment.get('B', '')}\n" == shown.stdout


@pytest.mark.parametrize(
    "condition",
    [
        '[ "$HOME_MADE" = 1 ]',
        "[ -d /data ]",
        "[[ $N =~ ^3 ]]",
        "command -v nvidia-smi",
        '[ "$N" = 3 ] && [ -f x ]',
        '! [ -z "$HOME_MADE" ]',
    ],
)
def test_what_a_file_a_command_or_the_environment_decides_is_not_known(condition: str) -> None:
    for body in (f"if {condition}; then A=1; else A=2; fi", f"{condition} && A=1"):
        if "command" not in body or body.startswith("if"):
            assert "A" in read_script(f"{SET}{body}\n").unknown


def words(script: Script) -> list[str]:
    return [str(word) for word in script.commands[-1]]


def test_arrays_that_a_condition_decides_are_not_lost(tmp_path: Path) -> None:
    """Their arguments were left out in silence: a run in bf16 was told in single precision."""
    shapes = "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024"
    text = """
        if [ "$X" = 1 ]; then A=(--bf16); else A=(--fp16); fi
        B=(--swiglu)
        if [ "$X" = 1 ]; then
            B=(
                "${B[@]}"
                --use-distributed-optimizer
            )
        fi
        B+=(--overlap-grad-reduce)
        if [ "$X" = 1 ]; then C=(--normalization RMSNorm); fi
        C+=(--disable-bias-linear)
    """
    command = "torchrun --nproc_per_node 8 pretrain_gpt.py --vocab-size 512 --micro-batch-size 1"
    path = tmp_path / "train.sh"
    path.write_text(f'{text}\n{command} {shapes} "${{A[@]}}" "${{B[@]}}" "${{C[@]}}"\n')
    reading = sweeps.read(path)
    told = " ".join(reading.notes)
    for name in ("--bf16", "--fp16", "$A is skipped"):
        assert name in told
    assert "--use-distributed-optimizer" in " ".join(
        word.text for word in read_script(path.read_text()).conditional
    )
    assert reading.given["gated_mlp"] == 1
    assert reading.given["linear_bias"] == 0


def test_words_of_an_array_are_parted_where_it_is_not_quoted() -> None:
    script = 'A=("--fp8-format hybrid" "--x")\n'
    assert words(read_script(f"{script}run ${{A[@]}}")) == ["run", "--fp8-format", "hybrid", "--x"]
    assert words(read_script(f'{script}run "${{A[@]}}"')) == ["run", "--fp8-format hybrid", "--x"]


@pytest.mark.parametrize(
    "text",
    [
        "!",
        "then",
        "else",
        "fi",
        "[",
        "[ ] &&",
        "&& A=1",
        "if ! ; then",
        "if [[ a",
        "elif",
        "}",
        "do",
    ],
)
def test_pieces_of_conditions_are_read_without_an_error(text: str) -> None:
    read_script(text)
    read_script(f"{text}\nA=1\nfi\n")
