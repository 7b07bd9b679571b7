#include "scheduling/radix_tree.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace aiomlc {

/*! \brief A run of tokens that follows those of the parent; empty for the root. */
struct RadixTree::Node {
  std::vector<int32_t> tokens;
  Node* parent = nullptr;
  /*! \brief Keyed by their first token. */
  std::map<int32_t, std::unique_ptr<Node>> children;
  /*! \brief The sequences that end at this node. */
  std::vector<int64_t> ids;

  void AttachChild(std::unique_ptr<Node> child) {
    child->parent = this;
    const int32_t first = child->tokens.front();
    children[first] = std::move(child);
  }

  size_t CountCommon(std::span<const int32_t> other) const {
    const size_t length = std::min(tokens.size(), other.size());
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(length);
    return static_cast<size_t>(std::mismatch(tokens.begin(), end, other.begin()).first -
                               tokens.begin());
  }

  int64_t AnyId() const {
    const Node* node = this;
    while (node->ids.empty()) node = node->children.begin()->second.get();
    return node->ids.front();
  }

  void AppendIds(std::vector<int64_t>* all) const {
    all->insert(all->end(), ids.begin(), ids.end());
    for (const auto& [token, child] : children) child->AppendIds(all);
  }
};

RadixTree::RadixTree() : root_(std::make_unique<Node>()) {}
RadixTree::~RadixTree() = default;

RadixTree::Node* RadixTree::Split(Node* node, size_t num_tokens) {
  Node* parent = node->parent;
  const auto middle = node->tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens);
  // All that may throw comes first, while the tree is unchanged.
  auto upper = std::make_unique<Node>();
  upper->tokens.assign(node->tokens.begin(), middle);
  upper->ids.reserve(1);
  upper->parent = parent;
  std::unique_ptr<Node>& lower = upper->children[*middle];
  std::unique_ptr<Node>& place = parent->children.at(node->tokens.front());
  lower = std::move(place);
  lower->tokens.erase(lower->tokens.begin(), middle);
  lower->parent = upper.get();
  place = std::move(upper);
  return place.get();
}

void RadixTree::Insert(int64_t id, std::span<const int32_t> tokens) {
  if (tokens.empty() || Contains(id)) {
    throw std::logic_error("a sequence is empty or already in the radix tree");
  }
  const auto end = ends_.emplace(id, nullptr).first;
  try {
    end->second = InsertTokens(id, tokens);
  } catch (...) {
    ends_.erase(end);
    throw;
  }
}

RadixTree::Node* RadixTree::InsertTokens(int64_t id, std::span<const int32_t> tokens) {
  Node* node = root_.get();
  while (!tokens.empty()) {
    const auto child = node->children.find(tokens.front());
    if (child == node->children.end()) {
      auto leaf = std::make_unique<Node>();
      leaf->tokens.assign(tokens.begin(), tokens.end());
      leaf->ids.push_back(id);
      Node* const added = leaf.get();
      node->AttachChild(std::move(leaf));
      return added;
    }
    node = child->second.get();
    const size_t common = node->CountCommon(tokens);
    if (common < node->tokens.size()) node = Split(node, common);
    tokens = tokens.subspan(common);
  }
  node->ids.push_back(id);
  return node;
}

void RadixTree::Remove(int64_t id) {
  const auto end = ends_.find(id);
  if (end == ends_.end()) throw std::logic_error("a sequence is not in the radix tree");
  Node* node = end->second;
  ends_.erase(end);
  std::erase(node->ids, id);
  while (node != root_.get() && node->ids.empty() && node->children.empty()) {
    Node* const parent = node->parent;
    const int32_t first = node->tokens.front();  // A copy: `erase` destroys the node.
    parent->children.erase(first);
    node = parent;
  }
  MergeWithOnlyChild(node);
}

void RadixTree::MergeWithOnlyChild(Node* node) {
  if (node == root_.get() || !node->ids.empty() || node->children.size() != 1) return;
  const std::vector<int32_t>& tail = node->children.begin()->second->tokens;
  try {
    node->tokens.reserve(node->tokens.size() + tail.size());
  } catch (const std::bad_alloc&) {
    has_redundant_ = true;  // Two nodes are as right as one. Nothing below allocates memory.
    return;
  }
  node->tokens.insert(node->tokens.end(), tail.begin(), tail.end());
  const std::unique_ptr<Node> child = std::move(node->children.begin()->second);
  node->ids = std::move(child->ids);
  for (int64_t id : node->ids) ends_.at(id) = node;
  node->children = std::move(child->children);
  for (auto& [token, grandchild] : node->children) grandchild->parent = node;
}

PrefixMatch RadixTree::FindLongest(std::span<const int32_t> tokens) const {
  const Node* node = root_.get();
  int64_t num_tokens = 0;
  while (!tokens.empty()) {
    const auto child = node->children.find(tokens.front());
    if (child == node->children.end()) break;
    node = child->second.get();
    const size_t common = node->CountCommon(tokens);
    num_tokens += static_cast<int64_t>(common);
    if (common < node->tokens.size()) break;
    tokens = tokens.subspan(common);
  }
  if (num_tokens == 0) return {};
  return {num_tokens, node->AnyId()};
}

std::vector<int64_t> RadixTree::PrefixesOf(int64_t id) const {
  std::vector<int64_t> others;
  for (const Node* node = ends_.at(id); node != nullptr; node = node->parent) {
    others.insert(others.end(), node->ids.begin(), node->ids.end());
  }
  std::erase(others, id);
  return others;
}

std::vector<int64_t> RadixTree::ExtensionsOf(int64_t id) const {
  std::vector<int64_t> others;
  ends_.at(id)->AppendIds(&others);
  std::erase(others, id);
  return others;
}

std::vector<std::string> RadixTree::FindViolations() const {
  std::vector<std::string> violations;
  size_t num_ids = 0;
  std::vector<const Node*> nodes = {root_.get()};
  while (!nodes.empty()) {
    const Node* node = nodes.back();
    nodes.pop_back();
    num_ids += node->ids.size();
    const bool is_root = node == root_.get();
    const size_t min_children = has_redundant_ ? 1 : 2;
    if (!is_root && node->ids.empty() && node->children.size() < min_children) {
      violations.push_back("a node of the radix tree is redundant");
    }
    if (is_root != node->tokens.empty())
      violations.push_back("a node has no tokens, or the root has tokens");
    for (int64_t id : node->ids) {
      const auto end = ends_.find(id);
      if (end == ends_.end() || end->second != node)
        violations.push_back("a sequence has two end nodes");
    }
    for (const auto& [token, child] : node->children) {
      if (child->parent != node || child->tokens.empty() || child->tokens.front() != token) {
        violations.push_back("a child has the wrong key or the wrong parent");
      }
      nodes.push_back(child.get());
    }
  }
  if (num_ids != ends_.size()) violations.push_back("a sequence of the radix tree has no end node");
  return violations;
}

}  // namespace aiomlc
