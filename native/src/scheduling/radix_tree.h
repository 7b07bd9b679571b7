/*!
 * \file scheduling/radix_tree.h
 * \brief A radix tree over prefix keys.
 */
#ifndef AIOMLC_SCHEDULING_RADIX_TREE_H_
#define AIOMLC_SCHEDULING_RADIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prompt/prefix_key.h"

namespace aiomlc {

/*! \brief The result of a prefix search. */
struct PrefixMatch {
  int64_t num_tokens = 0;
  /*! \brief A sequence that starts with these tokens; meaningless if num_tokens is 0. */
  int64_t id = -1;
  /*! \brief The longest prefix that any sequence has, whether it can be used or not. */
  int64_t num_common = 0;
};

/*!
 * \brief Finds the sequence with the longest common prefix.
 *
 * There is a root for each adapter with sequences, so prefixes of two adapters have nothing in
 * common. Each other node holds a run of keys, and each sequence ends at a node. A node at which no
 * sequence ends has at least two children, so there are fewer than twice as many nodes as
 * sequences. The cost of a call is linear in the keys that are passed, or in the keys of the
 * sequence `id`.
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
   * \param key At least one token; equal sequences are allowed.
   */
  void Insert(int64_t id, const PrefixKey& key);

  /*! \brief Remove a sequence that is in the tree. */
  void Remove(int64_t id);

  /*!
   * \brief Find the sequence with the longest prefix that can be used.
   * \param usable Returns how many of the first `num_common` tokens of a sequence can be used.
   * The first sequence of which all can be ends the search.
   */
  PrefixMatch FindLongest(const PrefixKey& key,
                          const std::function<int64_t(int64_t, int64_t)>& usable) const;
  /*! \brief Find a sequence with the longest common prefix with `key`. */
  PrefixMatch FindLongest(const PrefixKey& key) const;

  /*! \return The other sequences that are prefixes of sequence `id`, including equal ones. */
  std::vector<int64_t> PrefixesOf(int64_t id) const;

  /*! \return The other sequences that start with sequence `id`, including equal ones. */
  std::vector<int64_t> ExtensionsOf(int64_t id) const;

  /*! \return A message for each violated invariant; empty if there is none. */
  std::vector<std::string> FindViolations() const;

 private:
  struct Node;
  using Roots = std::map<std::string, std::unique_ptr<Node>, std::less<>>;

  /*! \return The root of an adapter, which is created if it does not exist. */
  Node* RootOf(std::string_view adapter);
  /*!
   * \brief Add the id to the node where its keys end, which is created if it does not exist.
   * \return The node. If memory is exhausted, no sequence has changed.
   */
  static Node* InsertKeys(int64_t id, Node* root, KeyRun keys);
  /*! \brief Split a node after `num_tokens` of its tokens. \return The upper node. */
  static Node* Split(Node* node, size_t num_tokens);
  /*! \brief Merge a node with its only child, if no sequence ends at the node. */
  void MergeWithOnlyChild(Node* node);

  /*! \brief By adapter. Those without sequences are removed with the next removal. */
  Roots roots_;
  std::unordered_map<int64_t, Node*> ends_;
  /*! \brief Whether nodes were not merged, because memory was exhausted. */
  bool has_redundant_ = false;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_RADIX_TREE_H_
