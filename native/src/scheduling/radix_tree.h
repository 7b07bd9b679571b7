/*!
 * \file scheduling/radix_tree.h
 * \brief A radix tree over token sequences.
 */
#ifndef AIOMLC_SCHEDULING_RADIX_TREE_H_
#define AIOMLC_SCHEDULING_RADIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aiomlc {

/*! \brief The result of a prefix search. */
struct PrefixMatch {
  int64_t num_tokens = 0;
  /*! \brief A sequence that starts with these tokens; meaningless if num_tokens is 0. */
  int64_t id = -1;
};

/*!
 * \brief Finds the token sequence with the longest common prefix.
 *
 * Each node holds a run of tokens, and each sequence ends at a node. A node at which no sequence
 * ends has at least two children, so there are fewer than twice as many nodes as sequences. The
 * cost of a call is linear in the tokens that are passed, or in the tokens of the sequence `id`.
 */
class RadixTree {
 public:
  RadixTree();
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  size_t size() const { return ends_.size(); }
  bool Contains(int64_t id) const { return ends_.contains(id); }

  /*!
   * \brief Add a sequence.
   * \param id Not in the tree.
   * \param tokens At least one; equal sequences are allowed.
   */
  void Insert(int64_t id, std::span<const int32_t> tokens);

  /*! \brief Remove a sequence that is in the tree. */
  void Remove(int64_t id);

  /*! \brief Find a sequence with the longest common prefix with `tokens`. */
  PrefixMatch FindLongest(std::span<const int32_t> tokens) const;

  /*! \return The other sequences that are prefixes of sequence `id`, including equal ones. */
  std::vector<int64_t> PrefixesOf(int64_t id) const;

  /*! \return The other sequences that start with sequence `id`, including equal ones. */
  std::vector<int64_t> ExtensionsOf(int64_t id) const;

  /*! \return A message for each violated invariant; empty if there is none. */
  std::vector<std::string> FindViolations() const;

 private:
  struct Node;

  /*!
   * \brief Add the id to the node where its tokens end, which is created if it does not exist.
   * \return The node. If memory is exhausted, no sequence has changed.
   */
  Node* InsertTokens(int64_t id, std::span<const int32_t> tokens);
  /*! \brief Split a node after `num_tokens` of its tokens. \return The upper node. */
  static Node* Split(Node* node, size_t num_tokens);
  /*! \brief Merge a node with its only child, if no sequence ends at the node. */
  void MergeWithOnlyChild(Node* node);

  std::unique_ptr<Node> root_;
  std::unordered_map<int64_t, Node*> ends_;
  /*! \brief Whether nodes were not merged, because memory was exhausted. */
  bool has_redundant_ = false;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_RADIX_TREE_H_
