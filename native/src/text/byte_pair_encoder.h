/*!
 * \file text/byte_pair_encoder.h
 * \brief Byte-pair encoding of text in the native core, without a call to Python.
 */
#ifndef AIOMLC_TEXT_BYTE_PAIR_ENCODER_H_
#define AIOMLC_TEXT_BYTE_PAIR_ENCODER_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace aiomlc {

/*! \brief A merge rule: two adjacent tokens become one. */
struct Merge {
  int32_t left;
  int32_t right;
  int32_t merged;
};

/*!
 * \brief Byte-pair encoding (Sennrich et al., 2016) of text that is not split into words first.
 *
 * Skipping the tokenizer's pre-tokenization pattern rarely changes the result: the merges were
 * learned within words, so hardly any token crosses a word boundary. Where the tokens do differ,
 * for example in a long number, they are still a valid encoding of the text.
 */
class BytePairEncoder {
 public:
  /*!
   * \param merges The merge rules, highest priority first.
   * \param characters Maps the UTF-8 bytes of single characters to tokens, for a tokenizer that
   *     starts from characters; empty for one that starts from bytes.
   * \param bytes The token of each single byte; -1 for bytes without a token.
   */
  BytePairEncoder(const std::vector<Merge>& merges,
                  std::unordered_map<std::string, int32_t> characters,
                  const std::array<int32_t, 256>& bytes);

  /*! \return The tokens of `text`; bytes that have no token are skipped. */
  std::vector<int32_t> Encode(std::string_view text) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t merged;
  };

  /*! \brief Split text into the tokens of single characters and bytes, before any merge. */
  std::vector<int32_t> SplitIntoSymbols(std::string_view text) const;
  const Rule* FindRule(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> rules_;
  std::unordered_map<std::string, int32_t> characters_;
  std::array<int32_t, 256> bytes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_BYTE_PAIR_ENCODER_H_
