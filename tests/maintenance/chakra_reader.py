"""Replay written Chakra traces through the reader that Chakra publishes.

``python -m tests.maintenance.chakra_reader CHECKOUT`` needs a checkout of mlcommons/chakra,
``protoc`` with the C++ library of protocol buffers, and ``g++``. It builds the checkout's feeder,
by which simulators read, and replays traces of some steps: all nodes run, no receive is left
without its send, and the last node ends when the step does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from overhead.step.timeline import step_timeline
from sweeps.job import evaluation_of
from sweeps.traces.write import write_chakra
from tests.analysis_cases import job_of
from tests.traces.test_chakra import PLANS

REPLAY = Path(__file__).with_name("chakra_replay.cpp").read_text(encoding="utf-8")


def build(checkout: Path, folder: Path) -> Path:
    """Return the program that replays traces, built from the reader of a checkout."""
    schema = checkout / "schema" / "protobuf"
    subprocess.run(["protoc", f"-I{schema}", f"--cpp_out={folder}", "et_def.proto"], check=True)
    (folder / "replay.cpp").write_text(REPLAY, encoding="utf-8")
    feeder, utils = checkout / "src" / "feeder", checkout / "src" / "third_party" / "utils"
    sources = [
        folder / "replay.cpp",
        folder / "et_def.pb.cc",
        utils / "protoio.cc",
        feeder / "et_feeder.cpp",
        feeder / "et_feeder_node.cpp",
    ]
    folders = [f"-I{each}" for each in (folder, feeder, utils)]
    program = folder / "replay"
    command = ["g++", "-O1", "-std=c++17", "-w", *folders, *map(str, sources)]
    subprocess.run([*command, "-lprotobuf", "-o", str(program)], check=True)
    return program


def main() -> None:
    """Replay each plan's traces; say how the ends compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(Path(sys.argv[1]), folder)
        for number, line in enumerate(PLANS):
            evaluation = evaluation_of(job_of(line))
            timeline = step_timeline(evaluation)
            path = folder / f"plan{number}.et"
            count, _ = write_chakra(timeline, evaluation, path, overwrite=False)
            files = [str(folder / f"plan{number}.{rank}.et") for rank in range(count)]
            ran = subprocess.run([program, *files], check=True, capture_output=True, text=True)
            end, left = ran.stdout.split()
            off = float(end) / timeline.end - 1
            print(f"{line}\n  step {timeline.end:.4f} s, replay {off:+.2%}, nodes left {left}")
            if int(left) or abs(off) > 0.02:
                sys.exit("the replay isn't the step")


if __name__ == "__main__":
    main()
