/*!
 * \file scheduling/radix_tree.h
 * \brief Rows of tokens by their beginnings.
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

/*! \brief A beginning that some entry has, too. */
struct PrefixMatch {
  int64_t num_tokens = 0;
  /*! \brief An entry that begins with these tokens; meaningless without tokens. */
  int64_t id = -1;
};

/*!
 * \brief Finds, among rows of tokens, one with the longest common beginning.
 *
 * Each edge holds a run of tokens and each row ends at a node. A node that no row ends at has at
 * least two children, so there are fewer than twice as many nodes as rows. The cost of a call is
 * the number of tokens it is given, or that lead to the row it names.
 */
class RadixTree {
 public:
  RadixTree();
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  size_t size() const { return ends_.size(); }
  bool Contains(int64_t id) const { return ends_.contains(id); }

  /*! \param id Not in the tree. \param tokens At least one; other rows may have the same. */
  void Insert(int64_t id, std::span<const int32_t> tokens);

  /*! \param id In the tree. */
  void Remove(int64_t id);

  PrefixMatch FindLongest(std::span<const int32_t> tokens) const;

  /*! \return The other rows that this one begins with; equal rows are among them. */
  std::vector<int64_t> PrefixesOf(int64_t id) const;

  /*! \return The other rows that begin with this one; equal rows are among them. */
  std::vector<int64_t> ExtensionsOf(int64_t id) const;

  /*! \return One sentence for each contradiction; empty when all is well. */
  std::vector<std::string> FindViolations() const;

 private:
  struct Node;

  /*! \brief Divide a node after some of its tokens. \return The front part. */
  static Node* Split(Node* node, size_t num_tokens);
  /*! \brief Undo a branch that is none any more: no row ends here and one child is left. */
  void JoinWithOnlyChild(Node* node);

  std::unique_ptr<Node> root_;
  std::unordered_map<int64_t, Node*> ends_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_RADIX_TREE_H_
