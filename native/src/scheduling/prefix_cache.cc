#include "scheduling/prefix_cache.h"

#include <algorithm>

namespace aiomlc {

PrefixCache::PrefixCache(int64_t max_recycling, bool forks_anywhere)
    : max_recycling_(max_recycling), forks_anywhere_(forks_anywhere) {}

void PrefixCache::Share(int64_t id, const PrefixKey& key) {
  if (is_on() && !tree_.Contains(id)) tree_.Insert(id, key);
}

std::vector<int64_t> PrefixCache::Recycle(int64_t id, const PrefixKey& key, const Resources& cost) {
  PutKey(id, key);
  return AddRecycling(id, cost);
}

std::vector<int64_t> PrefixCache::Pin(int64_t id, const PrefixKey& key, const Resources& cost) {
  PutKey(id, key);
  pinned_.emplace(id, cost);
  pinned_cost_ += cost;
  return RedundantPrefixesOf(id);
}

std::vector<int64_t> PrefixCache::Unpin(int64_t id) {
  const auto entry = pinned_.find(id);
  if (entry == pinned_.end()) return {};
  const Resources cost = entry->second;
  pinned_.erase(entry);
  pinned_cost_ -= cost;
  return AddRecycling(id, cost);
}

void PrefixCache::PutKey(int64_t id, const PrefixKey& key) {
  if (tree_.Contains(id)) tree_.Remove(id);  // Inserted by `Share` with fewer tokens.
  tree_.Insert(id, key);
}

std::vector<int64_t> PrefixCache::AddRecycling(int64_t id, const Resources& cost) {
  recycling_.emplace(id, Entry{cost, order_.insert(order_.end(), id)});
  recycling_cost_ += cost;

  const auto longer = forks_anywhere_ ? FirstKept(tree_.ExtensionsOf(id)) : std::nullopt;
  if (longer.has_value()) {
    Touch(*longer);
    return {id};
  }
  std::vector<int64_t> redundant = RedundantPrefixesOf(id);
  const int64_t num_left = num_recycling() - static_cast<int64_t>(redundant.size());
  // The limit held before, so at most one entry exceeds it.
  if (max_recycling_ >= 0 && num_left > max_recycling_) {
    redundant.push_back(*std::find_if(order_.begin(), order_.end(), [&](int64_t other) {
      return std::find(redundant.begin(), redundant.end(), other) == redundant.end();
    }));
  }
  return redundant;
}

Resources PrefixCache::Remove(int64_t id) {
  if (tree_.Contains(id)) tree_.Remove(id);
  if (const auto pinned = pinned_.find(id); pinned != pinned_.end()) {
    const Resources cost = pinned->second;
    pinned_.erase(pinned);
    pinned_cost_ -= cost;
    return cost;
  }
  const auto entry = recycling_.find(id);
  if (entry == recycling_.end()) return {};
  const Resources cost = entry->second.cost;
  order_.erase(entry->second.order_position);
  recycling_.erase(entry);
  recycling_cost_ -= cost;
  return cost;
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

std::vector<int64_t> PrefixCache::RedundantPrefixesOf(int64_t id) const {
  if (!forks_anywhere_) return {};
  std::vector<int64_t> prefixes = tree_.PrefixesOf(id);
  std::erase_if(prefixes, [this](int64_t other) { return !IsRecycling(other); });
  return prefixes;
}

std::vector<std::string> PrefixCache::FindViolations() const {
  std::vector<std::string> violations = tree_.FindViolations();
  const auto require = [&](bool holds, const char* message) {
    if (!holds) violations.emplace_back(message);
  };
  Resources recycling_cost;
  for (const auto& [id, entry] : recycling_) {
    recycling_cost += entry.cost;
    require(!entry.cost.is_zero(), "a recycling entry holds nothing");
    require(*entry.order_position == id,
            "a recycling entry has the eviction position of another entry");
    require(tree_.Contains(id), "a recycling entry is not in the radix tree");
  }
  Resources pinned_cost;
  for (const auto& [id, cost] : pinned_) {
    pinned_cost += cost;
    require(tree_.Contains(id) && !IsRecycling(id),
            "a pinned entry is not in the radix tree or is also recycling");
  }
  require(pinned_cost == pinned_cost_, "the total cost of the pinned entries is wrong");
  require(recycling_cost == recycling_cost_, "the total cost of the recycling entries is wrong");
  require(order_.size() == recycling_.size(),
          "the eviction order does not have all recycling entries");
  require(max_recycling_ < 0 || num_recycling() <= max_recycling_,
          "there are more recycling entries than allowed");
  return violations;
}

}  // namespace aiomlc
