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
