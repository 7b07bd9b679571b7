/*!
 * \file text/byte_pair_encoder.h
 * \brief How a tokenizer cuts a piece of text, without asking Python.
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

/*! \brief Two tokens that stand side by side become one. */
struct Merge {
  int32_t left;
  int32_t right;
  int32_t merged;
};

/*!
 * \brief Byte-pair encoding (Sennrich et al., 2016) of text that is not split into words first.
 *
 * The pattern by which a tokenizer splits matters here only where a token could reach over a seam,
 * which its vocabulary has no such tokens for: they were learnt within the words. What is left are
 * rare differences, as in how a long number is cut, and those are valid tokens all the same.
 */
class BytePairEncoder {
 public:
  /*!
   * \param merges In the order of their priority.
   * \param characters The tokens of single characters, by their UTF-8 bytes, where a text is cut
   *     into characters first; empty where it is cut into bytes.
   * \param bytes The tokens of single bytes; -1 where there is none.
   */
  BytePairEncoder(const std::vector<Merge>& merges,
                  std::unordered_map<std::string, int32_t> characters,
                  const std::array<int32_t, 256>& bytes);

  /*! \return The tokens of `text`; bytes without a token of their own are left out. */
  std::vector<int32_t> Encode(std::string_view text) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t merged;
  };

  std::vector<int32_t> Split(std::string_view text) const;
  const Rule* Find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> rules_;
  std::unordered_map<std::string, int32_t> characters_;
  std::array<int32_t, 256> bytes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_BYTE_PAIR_ENCODER_H_
