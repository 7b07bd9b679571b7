#include "text/byte_pair_encoder.h"

#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace aiomlc {

namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/*! \return The number of bytes of the UTF-8 character that starts with byte `first`. */
size_t CharacterLength(unsigned char first) {
  if (first < 0xC0) return 1;
  if (first < 0xE0) return 2;
  return first < 0xF0 ? 3 : 4;
}

/*! \brief A token in the doubly linked list that is being merged; -1 marks the ends. */
struct Symbol {
  int32_t token_id;
  int32_t previous;
  int32_t next;
};

/*! \brief A possible merge, ordered by rank and then by position; stale once a neighbor changed. */
struct Candidate {
  int32_t rank;
  int32_t position;
  int32_t left;
  int32_t right;
  int32_t merged;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, position) > std::tie(other.rank, other.position);
  }
};

}  // namespace

BytePairEncoder::BytePairEncoder(const std::vector<Merge>& merges,
                                 std::unordered_map<std::string, int32_t> characters,
                                 const std::array<int32_t, 256>& bytes)
    : characters_(std::move(characters)), bytes_(bytes) {
  rules_.reserve(merges.size());
  for (const Merge& merge : merges) {
    const int32_t rank = static_cast<int32_t>(rules_.size());
    rules_.try_emplace(PairKey(merge.left, merge.right), Rule{rank, merge.merged});
  }
}

const BytePairEncoder::Rule* BytePairEncoder::FindRule(int32_t left, int32_t right) const {
  const auto entry = rules_.find(PairKey(left, right));
  return entry == rules_.end() ? nullptr : &entry->second;
}

std::vector<int32_t> BytePairEncoder::SplitIntoSymbols(std::string_view text) const {
  std::vector<int32_t> token_ids;
  for (size_t position = 0; position < text.size();) {
    const std::string_view character =
        text.substr(position, CharacterLength(static_cast<unsigned char>(text[position])));
    position += character.size();
    const auto entry = characters_.find(std::string(character));
    if (entry != characters_.end()) {
      token_ids.push_back(entry->second);
      continue;
    }
    for (const char byte : character) {
      token_ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    }
  }
  std::erase(token_ids, -1);
  return token_ids;
}

std::vector<int32_t> BytePairEncoder::Encode(std::string_view text) const {
  std::vector<Symbol> symbols;
  for (int32_t token_id : SplitIntoSymbols(text)) {
    const int32_t position = static_cast<int32_t>(symbols.size());
    symbols.push_back({token_id, position - 1, position + 1});
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](int32_t position) {
    if (position < 0 || symbols[position].next < 0) return;
    const int32_t left = symbols[position].token_id;
    const int32_t right = symbols[symbols[position].next].token_id;
    if (const Rule* rule = FindRule(left, right)) {
      candidates.push({rule->rank, position, left, right, rule->merged});
    }
  };
  for (int32_t position = 0; position < static_cast<int32_t>(symbols.size()); ++position)
    consider(position);
  while (!candidates.empty()) {
    const Candidate merge = candidates.top();
    candidates.pop();
    Symbol& left = symbols[merge.position];
    if (left.token_id != merge.left || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.token_id != merge.right) continue;
    left.token_id = merge.merged;
    left.next = std::exchange(right.next, -1);
    right.token_id = -1;
    if (left.next >= 0) symbols[left.next].previous = merge.position;
    consider(merge.position);
    consider(left.previous);
  }
  std::vector<int32_t> token_ids;
  for (int32_t position = 0; position >= 0; position = symbols[position].next)
    token_ids.push_back(symbols[position].token_id);
  return token_ids;
}

}  // namespace aiomlc
