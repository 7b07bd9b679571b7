/*!
 * \file model/hidden_states.h
 * \brief The hidden states that a forward pass can return besides its logits.
 */
#ifndef AIOMLC_MODEL_HIDDEN_STATES_H_
#define AIOMLC_MODEL_HIDDEN_STATES_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "options/engine_error.h"

namespace aiomlc {

/*!
 * \brief A place in a model at which hidden states are taken: n >= 0 is the residual stream after
 * n layers, so 0 are the embeddings.
 */
using HiddenLayer = int32_t;

/*! \brief After the final norm: what the head of the model reads. */
inline constexpr HiddenLayer kFinalNorm = std::numeric_limits<HiddenLayer>::max();

/*! \brief The hidden states that a forward pass returns; none by default. */
struct HiddenRequest {
  /*! \brief In ascending order; layers of `Model::hidden_layers()`. */
  std::vector<HiddenLayer> layers;
  /*! \brief Ascending indices in `ForwardInput::token_ids`. */
  std::vector<int32_t> positions;
};

/*! \brief A hidden layer that the model cannot return. */
class HiddenLayerError final : public EngineError {
 public:
  HiddenLayerError(HiddenLayer layer, std::span<const HiddenLayer> available);
};

/*! \throws HiddenLayerError if one of the requested layers is not available. */
void RequireHiddenLayers(std::span<const HiddenLayer> requested,
                         std::span<const HiddenLayer> available);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_HIDDEN_STATES_H_
