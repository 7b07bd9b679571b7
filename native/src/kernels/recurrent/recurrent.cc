/*!
 * \file kernels/recurrent/recurrent.cc
 * \brief The distribution of sequences and heads over threads, and the dispatch to the active tier.
 */
#include "kernels/recurrent/recurrent.h"

#include <algorithm>
#include <cstddef>

#include "kernels/recurrent/recurrent_lanes.h"
#include "platform/isa.h"

namespace aiomlc {

namespace {

RecurrentKernels ActiveRecurrentKernels() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return Avx512RecurrentKernels();
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return Avx2RecurrentKernels();
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() >= Isa::kNeon) return NeonRecurrentKernels();
#endif
  return PortableRecurrentKernels();
}

}  // namespace

void ShortConv(ThreadPool& pool, const ShortConvCall& call, std::span<const StateChain> chains,
               int64_t offset) {
  constexpr int64_t kChannels = 512;  // Of a task.
  const RecurrentKernels kernels = ActiveRecurrentKernels();
  const int64_t parts = (call.channels + kChannels - 1) / kChannels;
  pool.Run(static_cast<int>(static_cast<int64_t>(chains.size()) * parts), [&](int task) {
    const int64_t begin = task % parts * kChannels;
    const StateChain& chain = chains[static_cast<size_t>(task / parts)];
    kernels.short_conv(call, chain.data(), chain.size(), offset, begin,
                       std::min(begin + kChannels, call.channels));
  });
}

void GatedDelta(ThreadPool& pool, const GatedDeltaCall& call, std::span<const StateChain> chains,
                int64_t offset) {
  const RecurrentKernels kernels = ActiveRecurrentKernels();
  const int64_t heads = call.num_key_heads;
  pool.Run(static_cast<int>(static_cast<int64_t>(chains.size()) * heads), [&](int task) {
    thread_local std::vector<float> scratch;
    scratch.resize(std::max(scratch.size(), static_cast<size_t>(GatedDeltaScratch(call))));
    const StateChain& chain = chains[static_cast<size_t>(task / heads)];
    kernels.gated_delta(call, chain.data(), chain.size(), offset, task % heads, scratch.data());
  });
}

}  // namespace aiomlc
