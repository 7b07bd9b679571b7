#include "text/byte_pair_encoder.h"

#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace aiomlc {

namespace {

uint64_t KeyOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/*! \return Bytes of the UTF-8 character that begins with this one. */
size_t CharacterLength(unsigned char first) {
  if (first < 0xC0) return 1;
  if (first < 0xE0) return 2;
  return first < 0xF0 ? 3 : 4;
}

/*! \brief A token of a text that is being merged, with its neighbours; -1 at the ends. */
struct Symbol {
  int32_t token_id;
  int32_t previous;
  int32_t next;
};

/*! \brief A merge that was possible when it was found: the first by rank, then by place. */
struct Candidate {
  int32_t rank;
  int32_t at;
  int32_t left;
  int32_t right;
  int32_t merged;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, at) > std::tie(other.rank, other.at);
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
    rules_.try_emplace(KeyOf(merge.left, merge.right), Rule{rank, merge.merged});
  }
}

const BytePairEncoder::Rule* BytePairEncoder::Find(int32_t left, int32_t right) const {
  const auto entry = rules_.find(KeyOf(left, right));
  return entry == rules_.end() ? nullptr : &entry->second;
}

std::vector<int32_t> BytePairEncoder::Split(std::string_view text) const {
  std::vector<int32_t> token_ids;
  for (size_t at = 0; at < text.size();) {
    const std::string_view character =
        text.substr(at, CharacterLength(static_cast<unsigned char>(text[at])));
    at += character.size();
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
  for (int32_t token_id : Split(text)) {
    const int32_t at = static_cast<int32_t>(symbols.size());
    symbols.push_back({token_id, at - 1, at + 1});
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const int32_t left = symbols[at].token_id;
    const int32_t right = symbols[symbols[at].next].token_id;
    if (const Rule* rule = Find(left, right)) {
      candidates.push({rule->rank, at, left, right, rule->merged});
    }
  };
  for (int32_t at = 0; at < static_cast<int32_t>(symbols.size()); ++at) consider(at);
  while (!candidates.empty()) {
    const Candidate merge = candidates.top();
    candidates.pop();
    Symbol& left = symbols[merge.at];
    if (left.token_id != merge.left || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.token_id != merge.right) continue;
    left.token_id = merge.merged;
    left.next = std::exchange(right.next, -1);
    right.token_id = -1;
    if (left.next >= 0) symbols[left.next].previous = merge.at;
    consider(merge.at);
    consider(left.previous);
  }
  std::vector<int32_t> token_ids;
  for (int32_t at = 0; at >= 0; at = symbols[at].next) token_ids.push_back(symbols[at].token_id);
  return token_ids;
}

}  // namespace aiomlc
