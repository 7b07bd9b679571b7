/*!
 * \file scheduling/prefix_cache.h
 * \brief Which computed tokens can be used again, and what goes when room is needed.
 */
#ifndef AIOMLC_SCHEDULING_PREFIX_CACHE_H_
#define AIOMLC_SCHEDULING_PREFIX_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduling/radix_tree.h"

namespace aiomlc {

/*!
 * \brief Knows the tokens of sequences in the KV cache, so that new ones can fork from them.
 *
 * An entry is *shared* while its sequence runs, and *recycling* once that has ended and its pages
 * are kept for nobody in particular. A *pinned* entry is one that somebody keeps, beside the limit
 * and the order of eviction. It knows no model and moves no page: whoever asks it carries out what
 * it says.
 */
class PrefixCache {
 public:
  /*! \param max_recycling Recycling entries at most; 0 turns the cache off, -1 is no limit. */
  explicit PrefixCache(int64_t max_recycling);

  /*!
   * \brief Let others use the tokens of a running sequence.
   *
   * Does nothing when they may already, or when the cache is off.
   */
  void Share(int64_t id, std::span<const int32_t> tokens);

  /*!
   * \brief Keep the computed tokens of a sequence that ended.
   * \param num_pages Pages that they are kept in.
   * \return Recycling entries to remove: those that this one makes superfluous, those above the
   *     limit; it may be among them itself. They are entries until `Remove`.
   */
  std::vector<int64_t> Recycle(int64_t id, std::span<const int32_t> tokens, int64_t num_pages);

  /*!
   * \brief Keep the computed tokens of a sequence that ended, until `Unpin`.
   * \return Recycling entries to remove, which this one makes superfluous.
   */
  std::vector<int64_t> Pin(int64_t id, std::span<const int32_t> tokens, int64_t num_pages);

  /*!
   * \brief Make a pinned entry a recycling one; an unknown id does nothing.
   * \return As `Recycle`.
   */
  std::vector<int64_t> Unpin(int64_t id);

  /*! \return The pages that were kept; 0 for a shared entry, and for an unknown id. */
  int64_t Remove(int64_t id);

  /*! \brief Find the longest beginning of `tokens` that is an entry's beginning. */
  PrefixMatch Find(std::span<const int32_t> tokens) const { return tree_.FindLongest(tokens); }

  /*! \brief Note that an entry was of use; it is the last to be evicted now. */
  void Touch(int64_t id);

  bool is_on() const { return max_recycling_ != 0; }
  bool IsRecycling(int64_t id) const { return recycling_.contains(id); }
  /*! \param id Of a recycling or pinned entry. */
  int64_t PagesOf(int64_t id) const {
    return IsRecycling(id) ? recycling_.at(id).num_pages : pinned_.at(id);
  }
  /*! \brief Pages of all recycling entries. */
  int64_t num_pages() const { return num_pages_; }
  int64_t num_recycling() const { return static_cast<int64_t>(recycling_.size()); }
  /*! \brief Pinned entries and their pages. */
  const std::map<int64_t, int64_t>& pinned() const { return pinned_; }
  /*! \brief Pages of all pinned entries. */
  int64_t num_pinned_pages() const { return num_pinned_pages_; }
  /*! \brief Recycling entries, the least recently used first. */
  const std::list<int64_t>& eviction_order() const { return order_; }

  /*! \return One sentence for each contradiction; empty when all is well. */
  std::vector<std::string> FindViolations() const;

 private:
  struct Entry {
    int64_t num_pages;
    std::list<int64_t>::iterator place;
  };

  /*! \brief Let an entry have these tokens, and no others that it had before. */
  void PutTokens(int64_t id, std::span<const int32_t> tokens);
  /*! \return As `Recycle`. */
  std::vector<int64_t> AddRecycling(int64_t id, int64_t num_pages);
  /*! \brief A recycling or pinned entry among some ids. */
  std::optional<int64_t> FirstKept(const std::vector<int64_t>& ids) const;
  /*! \brief The recycling entries that one begins with. */
  std::vector<int64_t> RecyclingPrefixesOf(int64_t id) const;

  const int64_t max_recycling_;
  RadixTree tree_;
  std::unordered_map<int64_t, Entry> recycling_;
  std::list<int64_t> order_;
  int64_t num_pages_ = 0;
  std::map<int64_t, int64_t> pinned_;
  int64_t num_pinned_pages_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_PREFIX_CACHE_H_
