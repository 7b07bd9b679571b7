/*!
 * \file ffi/core.cc
 * \brief The engine as FFI globals: converts arguments and results.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "ffi/records.h"
#include "ffi/tensor_arguments.h"
#include "model/faulty_model.h"
#include "model/paged_kv_state.h"
#include "model/sharded_model.h"
#include "model/tvm_model.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

class ModelObj : public ffi::Object {
 public:
  ModelObj(std::unique_ptr<TvmModel> model, const std::optional<Faults>& faults)
      : model(std::move(model)), faults_(faults) {
    InjectFaults();
  }
  /*! \brief Let this model lead the other members of a group of shards. */
  void Lead(std::unique_ptr<Communicator> communicator, std::vector<int> processors) {
    sharded_ =
        std::make_unique<ShardedModel>(model.get(), std::move(communicator), std::move(processors));
    InjectFaults();
  }
  /*! \brief The model with all of its shards. */
  Model* whole_model() const {
    return sharded_ == nullptr ? static_cast<Model*>(model.get()) : sharded_.get();
  }
  /*! \brief The model for the engine, with injected faults if there are any. */
  Model* engine_model() const { return faulty_ == nullptr ? whole_model() : faulty_.get(); }
  /*! \brief Limit how long a pass in progress waits for other shards. */
  void Interrupt() const {
    if (sharded_ != nullptr) sharded_->Interrupt();
  }
  std::unique_ptr<TvmModel> model;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Model", ModelObj, ffi::Object);

 private:
  void InjectFaults() {
    if (faults_.has_value()) faulty_ = std::make_unique<FaultyModel>(whole_model(), *faults_);
  }

  const std::optional<Faults> faults_;
  std::unique_ptr<ShardedModel> sharded_;
  std::unique_ptr<FaultyModel> faulty_;
};

class ModelRef : public ffi::ObjectRef {
 public:
  ModelRef(std::unique_ptr<TvmModel> model, const std::optional<Faults>& faults)
      : ObjectRef(ffi::make_object<ModelObj>(std::move(model), faults)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ModelRef, ffi::ObjectRef, ModelObj);
};

/*! \brief Owns an engine, and keeps its models alive. */
class CoreObj : public ffi::Object {
 public:
  CoreObj(ModelRef model, ffi::Optional<ModelRef> draft_model, Vocabulary vocabulary,
          const EngineOptions& options)
      : model_(std::move(model)),
        draft_model_(std::move(draft_model)),
        engine(model_->engine_model(), std::move(vocabulary), options) {}
  void Stop() {
    engine.Stop();
    model_->Interrupt();
  }
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Core", CoreObj, ffi::Object);

 private:
  ModelRef model_;
  ffi::Optional<ModelRef> draft_model_;

 public:
  Engine engine;
};

class CoreRef : public ffi::ObjectRef {
 public:
  CoreRef(ModelRef model, ffi::Optional<ModelRef> draft_model, Vocabulary vocabulary,
          const EngineOptions& options)
      : ObjectRef(ffi::make_object<CoreObj>(std::move(model), std::move(draft_model),
                                            std::move(vocabulary), options)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(CoreRef, ffi::ObjectRef, CoreObj);
};

/*! \brief Call the engine, and translate an EngineError to the Python class of the same name. */
template <typename Call>
auto TranslateErrors(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const EngineError& error) {
    throw ffi::Error(ErrorKindName(error.kind()), error.what(), "");
  }
}

/*! \param faults Faults to inject, for tests. */
ModelRef OpenModel(const ffi::Module& library, const ffi::Array<ffi::Tensor>& params,
                   const RecordRef<ModelShapeObj>& shape, int num_threads,
                   const ffi::Optional<RecordRef<FaultsObj>>& faults, int device_type,
                   int device_index) {
  const DLDevice device{static_cast<DLDeviceType>(device_type), device_index};
  auto model = std::make_unique<TvmModel>(library, params, shape->ToNative(), num_threads, device);
  if (!faults.has_value()) return ModelRef(std::move(model), std::nullopt);
  const FaultsObj& record = *faults.value().get();
  if (record.allocation_fails_at_load) ThrowCacheAllocationError(*shape.get(), "injected fault");
  return ModelRef(std::move(model), static_cast<const Faults&>(record));
}

/*!
 * \brief Run one forward pass without an engine.
 * \return The logits of each row's last token, valid until the next call.
 */
ffi::Tensor RunForward(const ModelRef& model, const ffi::Shape& sequence_ids,
                       const ffi::Shape& append_lengths, const ffi::Shape& token_ids) {
  ForwardInput input;
  input.sequence_ids.assign(sequence_ids.begin(), sequence_ids.end());
  input.append_lengths.assign(append_lengths.begin(), append_lengths.end());
  input.token_ids.assign(token_ids.begin(), token_ids.end());
  int32_t end = 0;
  for (int32_t length : input.append_lengths) input.logit_positions.push_back((end += length) - 1);
  model->whole_model()->Forward(input);
  return model->model->logits();
}

/*! \return A member of a group of shards in the memory of a descriptor, which may be closed then.
 */
std::unique_ptr<Communicator> JoinShards(int descriptor, int rank, int size, int64_t spin_us,
                                         std::function<void()> watch) {
  std::shared_ptr<void> memory = MapShared(descriptor, Communicator::MemoryBytes(size));
  Communicator::Options options;
  options.rank = rank;
  options.size = size;
  options.spin = std::chrono::microseconds(spin_us);
  options.watch = std::move(watch);
  return std::make_unique<Communicator>(std::move(memory), std::move(options));
}

/*!
 * \brief Let a model lead the shards in worker processes.
 * \param processes Those of the ranks from 1 on, all children of this process.
 * \param processors Those of the model's threads; empty: all.
 */
void LeadShards(const ModelRef& model, int descriptor, const ffi::Shape& processes,
                const ffi::Shape& processors, int64_t spin_us) {
  std::vector<pid_t> workers(processes.begin(), processes.end());
  const int size = 1 + static_cast<int>(workers.size());
  model->Lead(JoinShards(descriptor, 0, size, spin_us, WatchWorkers(std::move(workers))),
              std::vector<int>(processors.begin(), processors.end()));
}

/*! \brief Run a model as another shard, until the first one or the parent process ends. */
void RunModelShard(const ModelRef& model, int descriptor, int rank, int size, int parent,
                   int64_t spin_us) {
  const auto communicator = JoinShards(descriptor, rank, size, spin_us, WatchParent(parent));
  RunShard(model->engine_model(), communicator.get());
}

CoreRef CreateCore(const ModelRef& model, const ffi::Optional<ModelRef>& draft_model,
                   const ffi::Array<ffi::Bytes>& vocabulary,
                   const RecordRef<EngineOptionsObj>& options) {
  Vocabulary tokens;
  tokens.reserve(vocabulary.size());
  for (const ffi::Bytes& token : vocabulary) tokens.emplace_back(token.data(), token.size());
  return TranslateErrors([&] {
    EngineOptions engine_options = options->ToNative();
    if (draft_model.has_value()) engine_options.draft_model = draft_model.value()->engine_model();
    return CoreRef(model, draft_model, std::move(tokens), engine_options);
  });
}

/*! \brief Convert int32 token ids in native byte order. */
std::vector<int32_t> TokenIds(const ffi::Bytes& bytes) {
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  std::copy_n(bytes.data(), ids.size() * sizeof(int32_t), reinterpret_cast<char*>(ids.data()));
  return ids;
}

/*!
 * \brief Submit a prompt.
 * \param token_ids int32 in native byte order.
 * \param pieces Its embedded pieces; none if it is text.
 */
int64_t Submit(const CoreRef& core, const ffi::Bytes& token_ids,
               const ffi::Optional<ffi::Array<RecordRef<PromptPieceObj>>>& pieces,
               const RecordRef<SequenceOptionsObj>& options) {
  return TranslateErrors([&] {
    Prompt prompt(TokenIds(token_ids));
    if (pieces.has_value()) {
      for (const RecordRef<PromptPieceObj>& piece : pieces.value()) {
        prompt.pieces.push_back(piece->ToNative(prompt.pieces.size()));
      }
    }
    return core->engine.Submit(std::move(prompt), options->ToNative());
  });
}

int64_t CountCached(const CoreRef& core, const ffi::Bytes& tokens) {
  return TranslateErrors([&] { return core->engine.CountCached(TokenIds(tokens)); });
}

/*! \return The bytes of a uint8[bytes] tensor. */
std::span<std::byte> BytesOf(const char* function, const TensorView& data) {
  const TensorArguments args(function);
  args.RequireShape(data, "data", {TensorArguments::kAny});
  return {reinterpret_cast<std::byte*>(args.Data<uint8_t>(data, "data")),
          static_cast<size_t>(data.size(0))};
}

/*! \param data uint8[bytes], to which the keys and values are written. */
void ExportPrefix(const CoreRef& core, const ffi::Bytes& tokens, int64_t begin, TensorView data) {
  const std::span<std::byte> bytes = BytesOf("aiomlc.core_export_prefix", data);
  TranslateErrors([&] { core->engine.ExportPrefix(TokenIds(tokens), begin, bytes); });
}

/*! \param data uint8[bytes], the keys and values. */
void ImportPrefix(const CoreRef& core, const ffi::Bytes& tokens, int64_t begin, TensorView data) {
  const std::span<std::byte> bytes = BytesOf("aiomlc.core_import_prefix", data);
  TranslateErrors([&] { core->engine.ImportPrefix(TokenIds(tokens), begin, bytes); });
}

/*! \brief Copy tokens out of the cache without an engine. \return Their keys and values. */
ffi::Bytes ExportTokens(const ModelRef& model, int64_t sequence_id, int64_t begin, int64_t end) {
  std::string data(model->model->state().ExportBytes(begin, end), '\0');
  model->model->state().Export(sequence_id, begin, end, reinterpret_cast<std::byte*>(data.data()));
  return ffi::Bytes(std::move(data));
}

/*! \brief Append tokens without an engine. \param data What `ExportTokens` returned. */
void ImportTokens(const ModelRef& model, int64_t sequence_id, const ffi::Bytes& data) {
  // A recurrent state is exported with the tokens.
  const SequenceState& state = model->model->state();
  const size_t fixed = state.ExportBytes(0, 0);
  const auto count =
      static_cast<int64_t>((data.size() - fixed) / (state.ExportBytes(0, 1) - fixed));
  model->model->state().Import(sequence_id, count, reinterpret_cast<const std::byte*>(data.data()));
}

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/*! \brief Serialize tokens: id, log-probability, number of alternatives, alternatives. */
std::string PackLogprobs(const std::vector<TokenLogprobs>& logprobs) {
  std::string out;
  for (const TokenLogprobs& token : logprobs) {
    Put(&out, token.token_id);
    Put(&out, token.logprob);
    Put(&out, static_cast<uint32_t>(token.top.size()));
    for (const Alternative& alternative : token.top) {
      Put(&out, alternative.token_id);
      Put(&out, alternative.logprob);
    }
  }
  return out;
}

/*!
 * \brief Return the records and notices since the last call, serialized for
 * `aiomlc/runtime/native/record_codec.py`. A notice is a record of sequence -1 with an error.
 */
ffi::Bytes Drain(const CoreRef& core) {
  std::string out;
  std::vector<Record> records = core->engine.Drain();
  for (std::string& notice : core->engine.TakeNotices()) {
    Record& record = records.emplace_back();
    record.sequence_id = -1;
    record.error = std::move(notice);
  }
  for (const Record& record : records) {
    const std::string logprobs = PackLogprobs(record.logprobs);
    const std::string prompt_logprobs = PackLogprobs(record.prompt_logprobs);
    Put<int64_t>(&out, record.sequence_id);
    Put<int64_t>(&out, record.prompt_tokens);
    Put<int64_t>(&out, record.completion_tokens);
    Put<int64_t>(&out, record.cached_tokens);
    Put(&out, static_cast<uint32_t>(record.token_ids.size()));
    Put(&out, static_cast<uint32_t>(logprobs.size()));
    Put(&out, static_cast<uint32_t>(prompt_logprobs.size()));
    Put(&out, static_cast<uint32_t>(record.text.size()));
    Put(&out, static_cast<uint32_t>(record.error.size()));
    Put(&out, static_cast<uint32_t>(record.finish_reason));
    out.append(reinterpret_cast<const char*>(record.token_ids.data()),
               record.token_ids.size() * sizeof(int32_t));
    out.append(logprobs);
    out.append(prompt_logprobs);
    out.append(record.text);
    out.append(record.error);
    if (record.finish_reason != FinishReason::kNone) Put(&out, record.timing);
  }
  return ffi::Bytes(std::move(out));
}

/*!
 * \brief Return the events with numbers >= `from`, serialized for
 * `aiomlc/runtime/native/record_codec.py`: the number of the first event, followed by the events.
 */
ffi::Bytes ReadTrace(const CoreRef& core, int64_t from) {
  std::string out;
  const EventBatch batch = core->engine.trace().Read(from);
  Put(&out, batch.first);
  for (const Event& event : batch.events) {
    Put(&out, event.sequence_id);
    Put(&out, event.start_ns);
    Put(&out, event.duration_ns);
    Put(&out, static_cast<int32_t>(event.kind));
    for (int32_t value : event.values) Put(&out, value);
  }
  return ffi::Bytes(std::move(out));
}

RecordRef<StatisticsObj> GetStatistics(const CoreRef& core) {
  return RecordRef<StatisticsObj>(ffi::make_object<StatisticsObj>(core->engine.GetStatistics()));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<ModelObj>();
  refl::ObjectDef<CoreObj>();
  refl::GlobalDef()
      .def("aiomlc.model_open", OpenModel)
      .def("aiomlc.model_add_sequence",
           [](const ModelRef& model, int64_t id) { model->whole_model()->state().Add(id); })
      .def("aiomlc.model_fork_sequence",
           [](const ModelRef& model, int64_t source_id, int64_t id, int64_t num_tokens) {
             model->whole_model()->state().Fork(source_id, id, num_tokens);
           })
      .def("aiomlc.model_remove_sequence",
           [](const ModelRef& model, int64_t id) { model->whole_model()->state().Remove(id); })
      .def("aiomlc.model_free_pages",
           [](const ModelRef& model) { return model->model->state().FreePages(); })
      .def("aiomlc.model_forward", RunForward)
      .def("aiomlc.model_export_tokens", ExportTokens)
      .def("aiomlc.model_import_tokens", ImportTokens)
      .def("aiomlc.shards_memory_bytes",
           [](int size) { return static_cast<int64_t>(Communicator::MemoryBytes(size)); })
      .def("aiomlc.model_lead_shards", LeadShards)
      .def("aiomlc.model_run_shard", RunModelShard)
      .def("aiomlc.core_create", CreateCore)
      .def("aiomlc.core_submit", Submit)
      .def("aiomlc.core_cancel", [](const CoreRef& core, int64_t id) { core->engine.Cancel(id); })
      .def("aiomlc.core_pause", [](const CoreRef& core, int64_t id) { core->engine.Pause(id); })
      .def("aiomlc.core_resume", [](const CoreRef& core, int64_t id) { core->engine.Resume(id); })
      .def("aiomlc.core_unpin", [](const CoreRef& core, int64_t id) { core->engine.Unpin(id); })
      .def("aiomlc.core_count_cached", CountCached)
      .def("aiomlc.core_export_prefix", ExportPrefix)
      .def("aiomlc.core_import_prefix", ImportPrefix)
      .def("aiomlc.core_reset", [](const CoreRef& core) { core->engine.Reset(); })
      .def("aiomlc.core_run",
           [](const CoreRef& core) { TranslateErrors([&] { core->engine.Run(); }); })
      .def("aiomlc.core_stop", [](const CoreRef& core) { core->Stop(); })
      .def("aiomlc.core_close",
           [](const CoreRef& core) { TranslateErrors([&] { core->engine.Close(); }); })
      .def("aiomlc.core_step",
           [](const CoreRef& core) { return TranslateErrors([&] { return core->engine.Step(); }); })
      .def("aiomlc.core_drain", Drain)
      .def("aiomlc.core_wake_fd", [](const CoreRef& core) { return core->engine.wake_fd(); })
      .def("aiomlc.core_failure",
           [](const CoreRef& core) { return ffi::String(core->engine.Failure()); })
      .def("aiomlc.core_check_invariants",
           [](const CoreRef& core) { core->engine.CheckInvariants(); })
      .def("aiomlc.core_statistics", GetStatistics)
      .def("aiomlc.core_enable_trace", [](const CoreRef& core) { core->engine.trace().Enable(); })
      .def("aiomlc.core_read_trace", ReadTrace);
}

}  // namespace
}  // namespace aiomlc
