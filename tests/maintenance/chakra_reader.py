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
from sweeps.cli.analysis_job import evaluation_of
from sweeps.traces.write import write_chakra
from tests.analysis_cases import job_of
from tests.traces.test_chakra import PLANS

REPLAY = r"""
#include <iostream>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include "et_feeder.h"

using namespace Chakra;
using Ends = std::tuple<unsigned, unsigned, unsigned>;
using Event = std::tuple<double, int, uint64_t>;  // When a node of a rank ends

std::vector<std::unique_ptr<ETFeeder>> ranks;
std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
std::map<Ends, double> sent;
std::map<Ends, std::pair<int, uint64_t>> waiting;

void issue(int rank, double now) {
  while (auto node = ranks[rank]->getNextIssuableNode()) {
    if (node->type() != ChakraProtoMsg::COMM_RECV_NODE) {
      events.emplace(now + node->runtime(), rank, node->id());
      continue;
    }
    Ends ends{node->comm_src(), node->comm_dst(), node->comm_tag()};
    if (sent.count(ends)) events.emplace(std::max(now, sent[ends]), rank, node->id());
    else waiting[ends] = {rank, node->id()};
  }
}

int main(int count, char** paths) {
  double now = 0;
  for (int i = 1; i < count; ++i) ranks.emplace_back(new ETFeeder(paths[i]));
  for (int rank = 0; rank + 1 < count; ++rank) issue(rank, 0);
  while (!events.empty()) {
    auto [end, rank, id] = events.top();
    events.pop();
    now = end;
    auto node = ranks[rank]->lookupNode(id);
    if (node->type() == ChakraProtoMsg::COMM_SEND_NODE) {
      Ends ends{node->comm_src(), node->comm_dst(), node->comm_tag()};
      sent[ends] = end;
      auto receive = waiting.find(ends);
      if (receive != waiting.end()) {
        events.emplace(end, receive->second.first, receive->second.second);
        waiting.erase(receive);
      }
    }
    ranks[rank]->freeChildrenNodes(id);
    ranks[rank]->removeNode(id);
    issue(rank, end);
  }
  size_t left = waiting.size();
  for (auto& rank : ranks) left += rank->hasNodesToIssue();
  std::cout << now / 1e6 << " " << left << std::endl;
}
"""


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
