#include "text/stop_matcher.h"

#include <utility>

namespace aiomlc {

namespace {

std::shared_ptr<const StopAutomaton> Share(const std::vector<std::string>& stop_strings) {
  thread_local std::weak_ptr<const StopAutomaton> last;
  std::shared_ptr<const StopAutomaton> shared = last.lock();
  if (shared == nullptr || shared->stop_strings() != stop_strings) {
    shared = std::make_shared<const StopAutomaton>(stop_strings);
    last = shared;
  }
  return shared;
}

}  // namespace

StopAutomaton::StopAutomaton(std::vector<std::string> stop_strings)
    : stop_strings_(std::move(stop_strings)), nodes_(1) {
  for (const std::string& stop_string : stop_strings_) Insert(stop_string);
  LinkFallbacks();
}

int32_t StopAutomaton::Child(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[node].first_child;
  while (child != kNone && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void StopAutomaton::Insert(std::string_view stop_string) {
  int32_t node = 0;
  for (char character : stop_string) {
    const uint8_t byte = static_cast<uint8_t>(character);
    int32_t child = Child(node, byte);
    if (child == kNone) {
      child = static_cast<int32_t>(nodes_.size());
      Node added;
      added.byte = byte;
      added.depth = nodes_[node].depth + 1;
      added.next_sibling = std::exchange(nodes_[node].first_child, child);
      nodes_.push_back(added);
    }
    node = child;
  }
  nodes_[node].match_length = nodes_[node].depth;
}

void StopAutomaton::LinkFallbacks() {
  // Breadth first: the fallback of a state is shorter, so it is already linked.
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    for (int32_t child = nodes_[parent].first_child; child != kNone;
         child = nodes_[child].next_sibling) {
      order.push_back(child);
      Node& node = nodes_[child];
      node.fallback = parent == 0 ? 0 : Next(nodes_[parent].fallback, node.byte);
      if (node.match_length == 0) node.match_length = nodes_[node.fallback].match_length;
    }
  }
}

int32_t StopAutomaton::Next(int32_t state, uint8_t byte) const {
  int32_t node = state;
  int32_t child = Child(node, byte);
  while (child == kNone && node != 0) {
    node = nodes_[node].fallback;
    child = Child(node, byte);
  }
  return child == kNone ? 0 : child;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stop_strings)
    : automaton_(Share(stop_strings)) {}

std::string StopMatcher::Put(std::string_view text, bool may_match) {
  if (automaton_->empty()) return std::string(text);
  for (char character : text) {
    pending_ += character;
    state_ = automaton_->Next(state_, static_cast<uint8_t>(character));
    const int32_t match_length = automaton_->match_length(state_);
    if (match_length > 0 && may_match) {
      matched_ = true;
      pending_.resize(pending_.size() - static_cast<size_t>(match_length));
      return std::exchange(pending_, {});
    }
  }
  const size_t num_released = pending_.size() - static_cast<size_t>(automaton_->depth(state_));
  std::string released = pending_.substr(0, num_released);
  pending_.erase(0, num_released);
  return released;
}

std::string StopMatcher::Finish() { return std::exchange(pending_, {}); }

}  // namespace aiomlc
