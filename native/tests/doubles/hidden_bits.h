/*!
 * \file tests/doubles/hidden_bits.h
 * \brief The hidden states of the fake models: the bits of a hash of the tokens.
 */
#ifndef AIOMLC_TESTS_DOUBLES_HIDDEN_BITS_H_
#define AIOMLC_TESTS_DOUBLES_HIDDEN_BITS_H_

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "model/model.h"

namespace aiomlc {

/*! \brief Collects the requested hidden states of a pass. A state has four floats of 16 bits. */
class HiddenBits {
 public:
  static constexpr int64_t kSize = 4;

  /*! \brief Begin a pass. \throws std::logic_error if the positions are not valid. */
  void Begin(const ForwardInput& input) {
    const std::vector<int32_t>& positions = input.hidden.positions;
    const auto num_tokens = static_cast<int32_t>(input.token_ids.size());
    if (!std::is_sorted(positions.begin(), positions.end(), std::less_equal<>()) ||
        (!positions.empty() && (positions.front() < 0 || positions.back() >= num_tokens))) {
      throw std::logic_error("the positions of hidden states are not ascending or out of range");
    }
    request_ = input.hidden;
    layers_.assign(request_.layers.size(), {});
  }

  /*! \brief Add the states of the token at an index of the pass, if they are requested. */
  void Append(int32_t index, uint64_t hash) {
    if (!std::binary_search(request_.positions.begin(), request_.positions.end(), index)) return;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const uint64_t bits = hash ^ Mask(request_.layers[i]);
      for (int64_t j = 0; j < kSize; ++j) {
        layers_[i].push_back(static_cast<float>(bits >> (16 * j) & 0xffff));
      }
    }
  }

  std::vector<const float*> data() const {
    std::vector<const float*> result;
    for (const std::vector<float>& layer : layers_) result.push_back(layer.data());
    return result;
  }

  /*! \return The hash whose hidden state at a layer is given. */
  static uint64_t HashOf(const float* state, HiddenLayer layer) {
    uint64_t bits = 0;
    for (int64_t j = 0; j < kSize; ++j) bits |= static_cast<uint64_t>(state[j]) << (16 * j);
    return bits ^ Mask(layer);
  }

 private:
  static uint64_t Mask(HiddenLayer layer) {
    return static_cast<uint64_t>(layer) * 0x9e3779b97f4a7c15u;
  }

  HiddenRequest request_;
  std::vector<std::vector<float>> layers_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_HIDDEN_BITS_H_
