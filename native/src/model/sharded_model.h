/*!
 * \file model/sharded_model.h
 * \brief The first shard of a model, which makes the others do what it does.
 */
#ifndef AIOMLC_MODEL_SHARDED_MODEL_H_
#define AIOMLC_MODEL_SHARDED_MODEL_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "model/model.h"
#include "model/shard_messages.h"
#include "platform/affinity.h"

namespace aiomlc {

/*! \brief Makes all calls to the state of the first shard, and records those that change it. */
class ShardedState final : public SequenceState {
 public:
  /*! \param state Not owned, as `calls`; both must outlive this object. */
  ShardedState(SequenceState* state, ShardMessageWriter* calls) : state_(state), calls_(calls) {}

  Resources total() const final { return state_->total(); }
  Resources Cost(int64_t num_tokens) const final { return state_->Cost(num_tokens); }
  Resources token_cost() const final { return state_->token_cost(); }
  int64_t granularity() const final { return state_->granularity(); }
  int64_t sharing_granularity() const final { return state_->sharing_granularity(); }
  int64_t Checkpoint(int64_t sequence_id, int64_t num_tokens) const final {
    return state_->Checkpoint(sequence_id, num_tokens);
  }
  void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) final;
  void Add(int64_t sequence_id) final;
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) final;
  void Rewind(int64_t sequence_id, int64_t count) final;
  void Remove(int64_t sequence_id) final;
  /*! \brief The other shards have their parts of the keys and values: the loader offers neither. */
  size_t ExportBytes(int64_t begin, int64_t end) const final;
  void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const final;
  void Import(int64_t sequence_id, int64_t count, const std::byte* data) final;

 private:
  SequenceState* const state_;
  ShardMessageWriter* const calls_;
};

/*!
 * \brief A model of which this process has the first shard, and worker processes the others.
 *
 * The others learn of changes of the state with the next pass. They compute it at the same time,
 * and all exchange partial sums in it. Their states are equal, since their pages are counted alike.
 */
class ShardedModel final : public Model {
 public:
  /*!
   * \param model The first shard. Not owned; must outlive this object.
   * \param communicator The first member of the group.
   * \param processors Those of a pass's threads; empty: all.
   */
  ShardedModel(Model* model, std::unique_ptr<Communicator> communicator,
               std::vector<int> processors);
  /*! \brief Make the other shards end. */
  ~ShardedModel() final;

  int64_t vocab_size() const final { return model_->vocab_size(); }
  int64_t context_window() const final { return model_->context_window(); }
  int64_t max_batch_size() const final { return model_->max_batch_size(); }
  int64_t prefill_chunk_size() const final { return model_->prefill_chunk_size(); }
  PieceTraits piece_traits() const final { return model_->piece_traits(); }
  std::span<const HiddenLayer> hidden_layers() const final { return model_->hidden_layers(); }
  int64_t hidden_size() const final { return model_->hidden_size(); }
  ThreadPool* thread_pool() final { return model_->thread_pool(); }
  SequenceState& state() final { return state_; }
  const SequenceState& state() const final { return state_; }
  /*! \throws ShardError if another shard has ended, failed, or does not answer. */
  ForwardOutput Forward(const ForwardInput& input) final;

  /*! \brief Limit how long the pass in progress waits for other shards. Thread-safe. */
  void Interrupt() noexcept;

 private:
  Model* const model_;
  const std::unique_ptr<Communicator> communicator_;
  const std::vector<int> processors_;
  ShardMessageWriter calls_;
  ShardedState state_;
};

/*!
 * \brief Make the calls that the first shard makes, until it closes the group.
 * \throws std::exception if a call failed, or another shard has; the others know.
 */
void RunShard(Model* model, Communicator* communicator);

/*! \return Throws a ShardError if a child process has ended. `processes[i]` has the rank i + 1. */
std::function<void()> WatchWorkers(std::vector<pid_t> processes);

/*! \return Throws ShardsClosed if this process has another parent than `parent`. */
std::function<void()> WatchParent(pid_t parent);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_SHARDED_MODEL_H_
