/*!
 * \file kernels/recurrent/state_memory.h
 * \brief The memory of recurrent states, and the layers that read and write it.
 */
#ifndef AIOMLC_KERNELS_RECURRENT_STATE_MEMORY_H_
#define AIOMLC_KERNELS_RECURRENT_STATE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "kernels/recurrent/recurrent.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The rows of one sequence in a forward pass. */
struct StateRow {
  int64_t sequence_id = 0;
  StateChain chain;
  /*! \brief Whether the layers' inputs are kept, so that `Replay` can compute the first of them. */
  bool records = false;
};

/*!
 * \brief Slots, each of which holds the states of all recurrent layers after some tokens.
 *
 * A slot is float32: the states of the layers, one after the other. Not thread-safe.
 */
class StateMemory {
 public:
  /*!
   * \param layer_sizes The floats of the state of each recurrent layer.
   * \throws std::bad_alloc If the memory cannot be allocated.
   */
  StateMemory(int64_t num_slots, const std::vector<int64_t>& layer_sizes);

  size_t slot_bytes() const { return static_cast<size_t>(slot_size_) * sizeof(float); }
  float* slot(int64_t index) { return memory_.get() + index * slot_size_; }
  const float* slot(int64_t index) const { return memory_.get() + index * slot_size_; }

  /*! \brief Begin a forward pass; each layer runs once during it. */
  void Begin(std::vector<StateRow> rows);

  /*! \brief Run layer `layer` of the recurrent ones over the rows of the pass. */
  void Run(int64_t layer, const ShortConvCall& call);
  void Run(int64_t layer, const GatedDeltaCall& call);

  /*!
   * \brief Compute a state from the first recorded tokens of a sequence.
   * \param run `begin` is 0, and `count` at most the recorded tokens.
   */
  void Replay(int64_t sequence_id, const StateRun& run) const;
  /*! \brief Drop what was recorded of a sequence, if anything. */
  void Forget(int64_t sequence_id) { records_.erase(sequence_id); }

  /*!
   * \return The memory of this thread's innermost `Scope`.
   * \throws std::logic_error If there is none.
   */
  static StateMemory& Current();

  /*! \brief Makes the states of a model current on this thread while it runs. */
  class Scope {
   public:
    explicit Scope(StateMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StateMemory* previous_;
  };

 private:
  using Call = std::variant<std::monostate, ShortConvCall, GatedDeltaCall>;
  /*! \brief Inputs of the rows of a sequence, of each layer. */
  using Inputs = std::vector<std::vector<float>>;

  struct Free {
    void operator()(float* memory) const;
  };

  template <typename LayerCall>
  void RunLayer(int64_t layer, const LayerCall& call);

  std::vector<int64_t> offsets_;
  int64_t slot_size_ = 0;
  std::unique_ptr<float[], Free> memory_;
  std::vector<StateRow> rows_;
  std::vector<StateChain> chains_;
  /*! \brief The last call of each layer, whose weights `Replay` uses. */
  std::vector<Call> calls_;
  std::unordered_map<int64_t, Inputs> records_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_RECURRENT_STATE_MEMORY_H_
