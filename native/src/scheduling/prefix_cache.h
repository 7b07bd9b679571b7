/*!
 * \file scheduling/prefix_cache.h
 * \brief The prefix cache: cached token sequences and the order of their eviction.
 */
#ifndef AIOMLC_SCHEDULING_PREFIX_CACHE_H_
#define AIOMLC_SCHEDULING_PREFIX_CACHE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/resources.h"
#include "prompt/prefix_key.h"
#include "scheduling/radix_tree.h"

namespace aiomlc {

/*!
 * \brief Indexes the tokens of sequences in the KV cache, so that new sequences can fork from them.
 *
 * An entry is *shared* while its sequence runs, and *recycling* once the sequence has ended and its
 * pages are kept. A *pinned* entry is kept until it is unpinned; it counts neither towards the
 * limit nor in the eviction order. This class does only the bookkeeping: the caller removes the
 * returned entries from the model and releases what they hold.
 */
class PrefixCache {
 public:
  /*!
   * \param max_recycling The maximum number of recycling entries; 0 disables the cache, -1 means no
   * limit.
   * \param forks_anywhere Whether entries can be forked at every token, which makes an entry
   * redundant that is a prefix of another one.
   */
  explicit PrefixCache(int64_t max_recycling, bool forks_anywhere = true);

  /*!
   * \brief Make the tokens of a running sequence available to other sequences.
   *
   * Does nothing if they already are, or if the cache is disabled.
   */
  void Share(int64_t id, const PrefixKey& key);

  /*!
   * \brief Keep the computed tokens of an ended sequence.
   * \param cost What these tokens hold in the model.
   * \return Recycling entries for the caller to `Remove`: redundant entries, and those above the
   *     limit. The new entry itself may be among them.
   */
  std::vector<int64_t> Recycle(int64_t id, const PrefixKey& key, const Resources& cost);

  /*!
   * \brief Keep the computed tokens of an ended sequence until `Unpin`.
   * \return Recycling entries for the caller to `Remove`, which the new entry makes redundant.
   */
  std::vector<int64_t> Pin(int64_t id, const PrefixKey& key, const Resources& cost);

  /*!
   * \brief Make a pinned entry a recycling entry; an unknown id has no effect.
   * \return See `Recycle`.
   */
  std::vector<int64_t> Unpin(int64_t id);

  /*! \brief Remove an entry. \return Its resources; zero for a shared entry or an unknown id. */
  Resources Remove(int64_t id);

  /*! \brief Find the longest prefix that `key` has in common with an entry, and can be used. */
  PrefixMatch Find(const PrefixKey& key,
                   const std::function<int64_t(int64_t, int64_t)>& usable) const {
    return tree_.FindLongest(key, usable);
  }
  PrefixMatch Find(const PrefixKey& key) const { return tree_.FindLongest(key); }

  /*! \brief Mark an entry as most recently used, so that it is evicted last. */
  void Touch(int64_t id);

  bool is_on() const { return max_recycling_ != 0; }
  bool IsRecycling(int64_t id) const { return recycling_.contains(id); }
  /*! \return The resources of a recycling or pinned entry. */
  const Resources& CostOf(int64_t id) const {
    return IsRecycling(id) ? recycling_.at(id).cost : pinned_.at(id);
  }
  /*! \brief The resources of all recycling entries. */
  const Resources& recycling_cost() const { return recycling_cost_; }
  int64_t num_recycling() const { return static_cast<int64_t>(recycling_.size()); }
  /*! \brief The resources of each pinned entry, by id. */
  const std::map<int64_t, Resources>& pinned() const { return pinned_; }
  /*! \brief The resources of all pinned entries. */
  const Resources& pinned_cost() const { return pinned_cost_; }
  /*! \brief The recycling entries, least recently used first. */
  const std::list<int64_t>& eviction_order() const { return order_; }

  /*! \return A message for each violated invariant; empty if there is none. */
  std::vector<std::string> FindViolations() const;

 private:
  struct Entry {
    Resources cost;
    std::list<int64_t>::iterator order_position;
  };

  /*! \brief Add an entry, or replace the key of an existing one. */
  void PutKey(int64_t id, const PrefixKey& key);
  /*! \brief Add a recycling entry whose tokens are in the tree. \return See `Recycle`. */
  std::vector<int64_t> AddRecycling(int64_t id, const Resources& cost);
  /*! \return The first of `ids` that is a recycling or pinned entry. */
  std::optional<int64_t> FirstKept(const std::vector<int64_t>& ids) const;
  /*! \return The recycling entries that entry `id` makes redundant. */
  std::vector<int64_t> RedundantPrefixesOf(int64_t id) const;

  const int64_t max_recycling_;
  const bool forks_anywhere_;
  RadixTree tree_;
  std::unordered_map<int64_t, Entry> recycling_;
  std::list<int64_t> order_;
  Resources recycling_cost_;
  std::map<int64_t, Resources> pinned_;
  Resources pinned_cost_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_PREFIX_CACHE_H_
