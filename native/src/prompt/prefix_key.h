/*!
 * \file prompt/prefix_key.h
 * \brief The identity of a prefix: two prefixes with equal keys have equal keys and values.
 */
#ifndef AIOMLC_PROMPT_PREFIX_KEY_H_
#define AIOMLC_PROMPT_PREFIX_KEY_H_

#include <algorithm>
#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace aiomlc {

/*! \brief A SHA-256 digest of the content of an embedded piece. */
using PieceDigest = std::array<uint8_t, 32>;

/*!
 * \brief The extent of a piece in time, height and width: RoPE has three positions at each of its
 * rows, which are in row-major order.
 */
struct PieceGrid {
  int64_t time = 0;
  int64_t height = 0;
  int64_t width = 0;

  bool is_empty() const { return time == 0; }
  /*! \return The RoPE positions that the piece takes: the text after it goes on at the next one. */
  int64_t num_rope_positions() const { return std::max(height, width); }
  friend auto operator<=>(const PieceGrid&, const PieceGrid&) = default;
};

/*! \brief The identity of an embedded piece, and its place in the prompt. */
struct PieceKey {
  /*! \brief The index of its first position in the prompt. */
  int64_t begin = 0;
  int64_t num_positions = 0;
  PieceDigest digest{};
  /*! \brief Empty if RoPE has one position per row, its index in the prompt. */
  PieceGrid grid = {};

  int64_t end() const { return begin + num_positions; }
  friend auto operator<=>(const PieceKey&, const PieceKey&) = default;
};

/*!
 * \brief The keys of consecutive positions: each is a token id, or a token id and the piece that
 * replaces its embedding.
 */
struct KeyRun {
  /*! \brief The index of the first position in the prompt. */
  int64_t begin = 0;
  /*! \brief One id per position, placeholders where a piece is. */
  std::span<const int32_t> token_ids;
  /*! \brief Pieces in ascending order without overlap; those at other positions are ignored. */
  std::span<const PieceKey> pieces;

  size_t size() const { return token_ids.size(); }
  bool empty() const { return token_ids.empty(); }
  int64_t end() const { return begin + static_cast<int64_t>(size()); }
  /*! \return The keys after the first `count`. */
  KeyRun After(size_t count) const {
    return {begin + static_cast<int64_t>(count), token_ids.subspan(count), pieces};
  }
  /*! \return The pieces at these positions; the first and the last may extend beyond them. */
  std::span<const PieceKey> CoveredPieces() const;
};

/*! \return The begin of the piece that positions both before and after `position` belong to;
 * `position` if there is none. */
int64_t BeginOfCutPiece(std::span<const PieceKey> pieces, int64_t position);

/*! \return The number of first keys that two runs with the same `begin` have in common. */
size_t CountCommon(const KeyRun& a, const KeyRun& b);

/*! \brief The identity of a prefix in the KV cache. A view: it owns nothing. */
struct PrefixKey {
  PrefixKey() = default;
  /*! \brief A prefix of text, without an adapter. */
  template <typename Tokens>
    requires std::constructible_from<std::span<const int32_t>, const Tokens&>
  PrefixKey(const Tokens& token_ids) : keys{0, token_ids, {}} {}
  PrefixKey(std::string_view adapter, std::span<const int32_t> token_ids,
            std::span<const PieceKey> pieces)
      : adapter(adapter), keys{0, token_ids, pieces} {}

  size_t size() const { return keys.size(); }
  /*! \return The key of the first `count` positions. */
  PrefixKey First(size_t count) const {
    return {adapter, keys.token_ids.first(count), keys.pieces};
  }

  /*! \brief A digest of the adapter's weights; empty if there is no adapter. */
  std::string_view adapter;
  /*! \brief The keys from position 0 on. */
  KeyRun keys;
};

/*! \return The number of first positions that two prefixes have in common. */
inline size_t CountCommon(const PrefixKey& a, const PrefixKey& b) {
  return a.adapter == b.adapter ? CountCommon(a.keys, b.keys) : 0;
}

}  // namespace aiomlc

#endif  // AIOMLC_PROMPT_PREFIX_KEY_H_
