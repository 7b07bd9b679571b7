#include "model/hidden_states.h"

#include <algorithm>

namespace aiomlc {

namespace {

std::string NameOf(HiddenLayer layer) {
  return layer == kFinalNorm ? "the final norm" : "layer " + std::to_string(layer);
}

std::string Describe(std::span<const HiddenLayer> available) {
  if (available.empty()) return "the model returns no hidden states";
  std::string text = "the model returns the hidden states of ";
  for (size_t i = 0; i < available.size(); ++i) {
    text += (i == 0 ? "" : ", ") + NameOf(available[i]);
  }
  return text;
}

}  // namespace

HiddenLayerError::HiddenLayerError(HiddenLayer layer, std::span<const HiddenLayer> available)
    : EngineError(ErrorKind::kBadRequest,
                  Describe(available) + "; those of " + NameOf(layer) + " were requested") {}

void RequireHiddenLayers(std::span<const HiddenLayer> requested,
                         std::span<const HiddenLayer> available) {
  for (HiddenLayer layer : requested) {
    if (!std::binary_search(available.begin(), available.end(), layer)) {
      throw HiddenLayerError(layer, available);
    }
  }
}

}  // namespace aiomlc
