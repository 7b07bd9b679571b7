#include "scheduling/prefix_cache.h"

#include <algorithm>

namespace aiomlc {

PrefixCache::PrefixCache(int64_t max_recycling) : max_recycling_(max_recycling) {}

void PrefixCache::Share(int64_t id, const PrefixKey& key) {
  if (is_on() && !tree_.Contains(id)) tree_.Insert(id, key);
}

std::vector<int64_t> PrefixCache::Recycle(int64_t id, const PrefixKey& key, int64_t num_pages) {
  PutKey(id, key);
  return AddRecycling(id, num_pages);
}

std::vector<int64_t> PrefixCache::Pin(int64_t id, const PrefixKey& key, int64_t num_pages) {
  PutKey(id, key);
  pinned_.emplace(id, num_pages);
  num_pinned_pages_ += num_pages;
  return RecyclingPrefixesOf(id);
}

std::vector<int64_t> PrefixCache::Unpin(int64_t id) {
  const auto entry = pinned_.find(id);
  if (entry == pinned_.end()) return {};
  const int64_t num_pages = entry->second;
  pinned_.erase(entry);
  num_pinned_pages_ -= num_pages;
  return AddRecycling(id, num_pages);
}

void PrefixCache::PutKey(int64_t id, const PrefixKey& key) {
  if (tree_.Contains(id)) tree_.Remove(id);  // Inserted by `Share` with fewer tokens.
  tree_.Insert(id, key);
}

std::vector<int64_t> PrefixCache::AddRecycling(int64_t id, int64_t num_pages) {
  recycling_.emplace(id, Entry{num_pages, order_.insert(order_.end(), id)});
  num_pages_ += num_pages;

  if (const auto longer = FirstKept(tree_.ExtensionsOf(id))) {
    Touch(*longer);
    return {id};
  }
  std::vector<int64_t> redundant = RecyclingPrefixesOf(id);
  const int64_t num_left = num_recycling() - static_cast<int64_t>(redundant.size());
  // The limit held before, so at most one entry exceeds it.
  if (max_recycling_ >= 0 && num_left > max_recycling_) {
    redundant.push_back(*std::find_if(order_.begin(), order_.end(), [&](int64_t other) {
      return std::find(redundant.begin(), redundant.end(), other) == redundant.end();
    }));
  }
  return redundant;
}

int64_t PrefixCache::Remove(int64_t id) {
  if (tree_.Contains(id)) tree_.Remove(id);
  if (const auto pinned = pinned_.find(id); pinned != pinned_.end()) {
    const int64_t num_pages = pinned->second;
    pinned_.erase(pinned);
    num_pinned_pages_ -= num_pages;
    return num_pages;
  }
  const auto entry = recycling_.find(id);
  if (entry == recycling_.end()) return 0;
  const int64_t num_pages = entry->second.num_pages;
  order_.erase(entry->second.order_position);
  recycling_.erase(entry);
  num_pages_ -= num_pages;
  return num_pages;
}

void PrefixCache::Touch(int64_t id) {
  const auto entry = recycling_.find(id);
  if (entry != recycling_.end()) order_.splice(order_.end(), order_, entry->second.order_position);
}

std::optional<int64_t> PrefixCache::FirstKept(const std::vector<int64_t>& ids) const {
  const auto kept = std::find_if(ids.begin(), ids.end(), [this](int64_t id) {
    return IsRecycling(id) || pinned_.contains(id);
  });
  return kept == ids.end() ? std::nullopt : std::optional(*kept);
}

std::vector<int64_t> PrefixCache::RecyclingPrefixesOf(int64_t id) const {
  std::vector<int64_t> prefixes = tree_.PrefixesOf(id);
  std::erase_if(prefixes, [this](int64_t other) { return !IsRecycling(other); });
  return prefixes;
}

std::vector<std::string> PrefixCache::FindViolations() const {
  std::vector<std::string> violations = tree_.FindViolations();
  const auto require = [&](bool holds, const char* message) {
    if (!holds) violations.emplace_back(message);
  };
  int64_t num_pages = 0;
  for (const auto& [id, entry] : recycling_) {
    num_pages += entry.num_pages;
    require(entry.num_pages > 0, "a recycling entry has no pages");
    require(*entry.order_position == id,
            "a recycling entry has the eviction position of another entry");
    require(tree_.Contains(id), "a recycling entry is not in the radix tree");
  }
  int64_t num_pinned_pages = 0;
  for (const auto& [id, pages] : pinned_) {
    num_pinned_pages += pages;
    require(tree_.Contains(id) && !IsRecycling(id),
            "a pinned entry is not in the radix tree or is also recycling");
  }
  require(num_pinned_pages == num_pinned_pages_, "the page total of the pinned entries is wrong");
  require(num_pages == num_pages_, "the page total of the recycling entries is wrong");
  require(order_.size() == recycling_.size(),
          "the eviction order does not have all recycling entries");
  require(max_recycling_ < 0 || num_recycling() <= max_recycling_,
          "there are more recycling entries than allowed");
  return violations;
}

}  // namespace aiomlc
