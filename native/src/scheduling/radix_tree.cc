#include "scheduling/radix_tree.h"

#include <algorithm>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

namespace aiomlc {

namespace {

/*! \brief The key of a child's first position, which tells it from the other children of a node. */
struct FirstKey {
  int32_t token_id;
  /*! \brief Without positions if no piece is there. */
  PieceKey piece;

  bool operator==(const FirstKey&) const = default;
  bool operator<(const FirstKey& other) const {
    if (token_id != other.token_id) return token_id < other.token_id;
    const bool has_piece = piece.num_positions > 0 || other.piece.num_positions > 0;
    return has_piece && piece < other.piece;
  }
};

FirstKey FirstKeyOf(const KeyRun& keys) {
  const int32_t token_id = keys.token_ids.front();
  if (keys.pieces.empty()) return {token_id, {}};
  const std::span<const PieceKey> pieces =
      KeyRun{keys.begin, keys.token_ids.first(1), keys.pieces}.CoveredPieces();
  return {token_id, pieces.empty() ? PieceKey() : pieces.front()};
}

}  // namespace

/*! \brief A run of keys that follows those of the parent; empty for a root. */
struct RadixTree::Node {
  Node() = default;
  explicit Node(const KeyRun& keys)
      : begin(keys.begin), tokens(keys.token_ids.begin(), keys.token_ids.end()) {
    if (keys.pieces.empty()) return;
    const std::span<const PieceKey> covered = keys.CoveredPieces();
    pieces.assign(covered.begin(), covered.end());
  }

  int64_t begin = 0;
  std::vector<int32_t> tokens;
  /*! \brief The pieces at positions of this node, which may extend beyond it. */
  std::vector<PieceKey> pieces;
  /*! \brief Null for a root. */
  Node* parent = nullptr;
  /*! \brief Keyed by their first key. */
  std::map<FirstKey, std::unique_ptr<Node>> children;
  /*! \brief The sequences that end at this node. */
  std::vector<int64_t> ids;

  KeyRun keys() const { return {begin, tokens, pieces}; }

  /*!
   * \brief Call `visit(id)` for the sequences below, except those of one child, until it returns
   * true. \return Whether it has.
   */
  template <typename Visit>
  bool AnyOf(const Node* except, const Visit& visit) const {
    return std::any_of(ids.begin(), ids.end(), visit) ||
           std::any_of(children.begin(), children.end(), [&](const auto& child) {
             return child.second.get() != except && child.second->AnyOf(nullptr, visit);
           });
  }

  void AppendIds(std::vector<int64_t>* all) const {
    all->insert(all->end(), ids.begin(), ids.end());
    for (const auto& [first, child] : children) child->AppendIds(all);
  }
};

RadixTree::RadixTree() = default;
RadixTree::~RadixTree() = default;

RadixTree::Node* RadixTree::RootOf(std::string_view adapter) {
  const auto root = roots_.find(adapter);
  if (root != roots_.end()) return root->second.get();
  return roots_.emplace(adapter, std::make_unique<Node>()).first->second.get();
}

RadixTree::Node* RadixTree::Split(Node* node, size_t num_tokens) {
  Node* parent = node->parent;
  const KeyRun keys = node->keys();
  const KeyRun tail = keys.After(num_tokens);
  const auto middle = node->tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens);
  // All that may throw comes first, while the tree is unchanged.
  auto upper =
      std::make_unique<Node>(KeyRun{keys.begin, keys.token_ids.first(num_tokens), keys.pieces});
  upper->ids.reserve(1);
  upper->parent = parent;
  std::unique_ptr<Node>& lower = upper->children[FirstKeyOf(tail)];
  std::unique_ptr<Node>& place = parent->children.at(FirstKeyOf(keys));
  const auto num_ended = tail.CoveredPieces().begin() - keys.pieces.begin();
  lower = std::move(place);
  lower->begin = tail.begin;
  lower->tokens.erase(lower->tokens.begin(), middle);
  lower->pieces.erase(lower->pieces.begin(), lower->pieces.begin() + num_ended);
  lower->parent = upper.get();
  place = std::move(upper);
  return place.get();
}

void RadixTree::Insert(int64_t id, const PrefixKey& key) {
  if (key.keys.empty() || Contains(id)) {
    throw std::logic_error("a sequence is empty or already in the radix tree");
  }
  const auto end = ends_.emplace(id, nullptr).first;
  try {
    end->second = InsertKeys(id, RootOf(key.adapter), key.keys);
  } catch (...) {
    ends_.erase(end);
    throw;
  }
}

RadixTree::Node* RadixTree::InsertKeys(int64_t id, Node* root, KeyRun keys) {
  Node* node = root;
  while (!keys.empty()) {
    const FirstKey first = FirstKeyOf(keys);
    const auto child = node->children.find(first);
    if (child == node->children.end()) {
      auto leaf = std::make_unique<Node>(keys);
      leaf->ids.push_back(id);
      leaf->parent = node;
      return (node->children[first] = std::move(leaf)).get();
    }
    node = child->second.get();
    const size_t common = CountCommon(node->keys(), keys);
    if (common < node->tokens.size()) node = Split(node, common);
    keys = keys.After(common);
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
  while (node->parent != nullptr && node->ids.empty() && node->children.empty()) {
    Node* const parent = node->parent;
    parent->children.erase(FirstKeyOf(node->keys()));
    node = parent;
  }
  if (node->parent != nullptr) {
    MergeWithOnlyChild(node);
  } else if (node->children.empty()) {
    std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  }
}

void RadixTree::MergeWithOnlyChild(Node* node) {
  if (!node->ids.empty() || node->children.size() != 1) return;
  const Node& tail = *node->children.begin()->second;
  try {
    node->tokens.reserve(node->tokens.size() + tail.tokens.size());
    node->pieces.reserve(node->pieces.size() + tail.pieces.size());
  } catch (const std::bad_alloc&) {
    has_redundant_ = true;  // Two nodes are as right as one. Nothing below allocates memory.
    return;
  }
  node->tokens.insert(node->tokens.end(), tail.tokens.begin(), tail.tokens.end());
  for (const PieceKey& piece : tail.pieces) {
    if (node->pieces.empty() || node->pieces.back() != piece) node->pieces.push_back(piece);
  }
  const std::unique_ptr<Node> child = std::move(node->children.begin()->second);
  node->ids = std::move(child->ids);
  for (int64_t id : node->ids) ends_.at(id) = node;
  node->children = std::move(child->children);
  for (auto& [first, grandchild] : node->children) grandchild->parent = node;
}

PrefixMatch RadixTree::FindLongest(const PrefixKey& key,
                                   const std::function<int64_t(int64_t, int64_t)>& usable) const {
  const auto root = roots_.find(key.adapter);
  if (root == roots_.end()) return {};
  const Node* node = root->second.get();
  KeyRun keys = key.keys;
  while (!keys.empty()) {
    const auto child = node->children.find(FirstKeyOf(keys));
    if (child == node->children.end()) break;
    node = child->second.get();
    const size_t common = CountCommon(node->keys(), keys);
    keys = keys.After(common);
    if (common < node->tokens.size()) break;
  }
  PrefixMatch best{.num_common = keys.begin};
  const Node* below = nullptr;
  // The sequences that leave the path later have more in common.
  for (int64_t common = keys.begin; best.num_tokens < common; common = node->keys().end()) {
    node->AnyOf(below, [&](int64_t id) {
      const int64_t num_tokens = usable(id, common);
      if (num_tokens > best.num_tokens) {
        best.num_tokens = num_tokens;
        best.id = id;
      }
      return best.num_tokens == common;
    });
    below = node;
    node = node->parent;
    if (node == nullptr) break;
  }
  return best;
}

PrefixMatch RadixTree::FindLongest(const PrefixKey& key) const {
  return FindLongest(key, [](int64_t /*id*/, int64_t num_common) { return num_common; });
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
  std::vector<const Node*> nodes;
  for (const auto& [adapter, root] : roots_) {
    if (root->parent != nullptr || !root->ids.empty() || !root->tokens.empty())
      violations.push_back("a root has a parent, ids or tokens");
    nodes.push_back(root.get());
  }
  const size_t min_children = has_redundant_ ? 1 : 2;
  while (!nodes.empty()) {
    const Node* node = nodes.back();
    nodes.pop_back();
    num_ids += node->ids.size();
    const bool is_root = node->parent == nullptr;
    if (!is_root && node->ids.empty() && node->children.size() < min_children) {
      violations.push_back("a node of the radix tree is redundant");
    }
    if (!is_root && node->tokens.empty()) violations.push_back("a node has no tokens");
    if (node->keys().CoveredPieces().size() != node->pieces.size())
      violations.push_back("a node has a piece at none of its positions");
    for (int64_t id : node->ids) {
      const auto end = ends_.find(id);
      if (end == ends_.end() || end->second != node)
        violations.push_back("a sequence has two end nodes");
    }
    for (const auto& [first, child] : node->children) {
      if (child->parent != node || child->tokens.empty() || FirstKeyOf(child->keys()) != first ||
          child->begin != node->keys().end()) {
        violations.push_back("a child has the wrong key, place or parent");
      }
      nodes.push_back(child.get());
    }
  }
  if (num_ids != ends_.size()) violations.push_back("a sequence of the radix tree has no end node");
  return violations;
}

}  // namespace aiomlc
