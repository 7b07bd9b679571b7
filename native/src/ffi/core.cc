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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "ffi/grammar.h"
#include "model/faulty_model.h"
#include "model/tvm_model.h"
#include "platform/cpu_info.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

using Options = ffi::Map<ffi::String, ffi::Any>;

class ModelObj : public ffi::Object {
 public:
  ModelObj(std::unique_ptr<TvmModel> model, const std::optional<Faults>& faults)
      : model(std::move(model)) {
    if (faults.has_value()) faulty_ = std::make_unique<FaultyModel>(this->model.get(), *faults);
  }
  /*! \brief The model for the engine, with injected faults if there are any. */
  Model* engine_model() const {
    return faulty_ == nullptr ? static_cast<Model*>(model.get()) : faulty_.get();
  }
  std::unique_ptr<TvmModel> model;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Model", ModelObj, ffi::Object);

 private:
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

template <typename T>
T Read(const Options& options, const char* key) {
  return options[key].cast<T>();
}

/*! \brief Call the engine, and translate an EngineError to the Python class of the same name. */
template <typename Call>
auto TranslateErrors(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const EngineError& error) {
    throw ffi::Error(ErrorKindName(error.kind()), error.what(), "");
  }
}

std::optional<Faults> ReadFaults(const ffi::Optional<Options>& faults) {
  if (!faults.has_value()) return std::nullopt;
  return Faults{.fail_at_step = Read<int64_t>(*faults, "fail_at_step"),
                .allocation_fails_at_step = Read<int64_t>(*faults, "allocation_fails_at_step"),
                .nan_at_step = Read<int64_t>(*faults, "nan_at_step"),
                .nan_every = Read<int64_t>(*faults, "nan_every")};
}

/*! \param faults Faults to inject, for tests. */
ModelRef OpenModel(const ffi::Module& library, const ffi::Array<ffi::Tensor>& params,
                   const Options& sizes, int num_threads, const ffi::Optional<Options>& faults) {
  ModelShape shape;
  shape.vocab_size = Read<int64_t>(sizes, "vocab_size");
  shape.context_window = Read<int64_t>(sizes, "context_window");
  shape.max_batch_size = Read<int64_t>(sizes, "max_batch_size");
  shape.prefill_chunk_size = Read<int64_t>(sizes, "prefill_chunk_size");
  shape.max_total_tokens = Read<int64_t>(sizes, "max_total_tokens");
  auto model = std::make_unique<TvmModel>(library, params, shape, num_threads);
  if (faults.has_value() && Read<bool>(*faults, "allocation_fails_at_load")) {
    ThrowCacheAllocationError(shape, "injected fault");
  }
  return ModelRef(std::move(model), ReadFaults(faults));
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
  model->model->Forward(input);
  return model->model->logits();
}

CoreRef CreateCore(const ModelRef& model, const ffi::Optional<ModelRef>& draft_model,
                   const ffi::Array<ffi::Bytes>& vocabulary, const Options& options) {
  Vocabulary tokens;
  tokens.reserve(vocabulary.size());
  for (const ffi::Bytes& token : vocabulary) tokens.emplace_back(token.data(), token.size());
  EngineOptions engine_options;
  engine_options.step_token_budget = Read<int64_t>(options, "step_token_budget");
  engine_options.max_recycling_sequences = Read<int64_t>(options, "max_recycling_sequences");
  engine_options.max_queue_size = Read<int64_t>(options, "max_queue_size");
  engine_options.separate_prefill = Read<int64_t>(options, "separate_prefill") != 0;
  engine_options.speculative_mode =
      static_cast<SpeculativeMode>(Read<int64_t>(options, "speculative_mode"));
  engine_options.draft_length = Read<int64_t>(options, "draft_length");
  if (draft_model.has_value()) engine_options.draft_model = draft_model.value()->engine_model();
  return TranslateErrors(
      [&] { return CoreRef(model, draft_model, std::move(tokens), engine_options); });
}

LogitOptions ToLogitOptions(const Options& options) {
  LogitOptions result;
  result.presence_penalty = Read<double>(options, "presence_penalty");
  result.frequency_penalty = Read<double>(options, "frequency_penalty");
  result.repetition_penalty = Read<double>(options, "repetition_penalty");
  for (const auto& [token_id, bias] : Read<ffi::Map<int64_t, double>>(options, "logit_bias")) {
    result.logit_bias.push_back({token_id, bias});
  }
  return result;
}

std::optional<double> ReadSeconds(const Options& options, const char* key) {
  const auto seconds = Read<ffi::Optional<double>>(options, key);
  return seconds.has_value() ? std::optional(*seconds) : std::nullopt;
}

/*!
 * \brief Wrap a Python logits processor.
 * \param call Takes the token ids since its last call, changes the logits in `buffer` and returns
 *     whether it succeeded.
 * \param buffer float32[vocab_size], owned by Python, so that references kept by the processor stay
 *     valid.
 */
LogitsProcessor ToLogitsProcessor(const ffi::Function& call, const ffi::Tensor& buffer) {
  return [call, buffer, num_passed = size_t{0}](std::span<const int32_t> token_ids,
                                                std::span<float> logits) mutable {
    float* buffer_logits = static_cast<float*>(buffer.data_ptr());
    std::copy(logits.begin(), logits.end(), buffer_logits);
    const std::span<const int32_t> new_ids = token_ids.subspan(num_passed);
    num_passed = token_ids.size();
    try {
      if (!call(ffi::Shape(new_ids.begin(), new_ids.end())).cast<bool>()) {
        throw LogitsProcessorError("a logits processor failed");
      }
    } catch (const ffi::Error& error) {
      throw LogitsProcessorError(error.what());
    }
    std::copy_n(buffer_logits, logits.size(), logits.begin());
  };
}

SequenceOptions ToSequenceOptions(const Options& options) {
  SequenceOptions result;
  result.sampling.temperature = Read<double>(options, "temperature");
  result.sampling.top_p = Read<double>(options, "top_p");
  result.sampling.top_k = Read<int64_t>(options, "top_k");
  result.sampling.min_p = Read<double>(options, "min_p");
  result.logits = ToLogitOptions(options);
  if (auto limit = Read<ffi::Optional<int64_t>>(options, "max_tokens")) result.max_tokens = *limit;
  result.min_tokens = Read<int64_t>(options, "min_tokens");
  result.priority = Read<int64_t>(options, "priority");
  result.is_pinned = Read<bool>(options, "is_pinned");
  result.time_limits.timeout = ReadSeconds(options, "timeout");
  result.time_limits.first_token_timeout = ReadSeconds(options, "first_token_timeout");
  result.time_limits.inter_token_timeout = ReadSeconds(options, "inter_token_timeout");
  if (auto seed = Read<ffi::Optional<int64_t>>(options, "seed")) {
    result.seed = static_cast<uint64_t>(*seed);
  }
  for (const ffi::String& text : Read<ffi::Array<ffi::String>>(options, "stop")) {
    result.stop.emplace_back(text.data(), text.size());
  }
  for (int64_t id : Read<ffi::Shape>(options, "stop_token_ids")) {
    result.stop_token_ids.push_back(static_cast<int32_t>(id));
  }
  if (auto count = Read<ffi::Optional<int64_t>>(options, "top_logprobs")) {
    result.top_logprobs = *count;
  }
  if (auto count = Read<ffi::Optional<int64_t>>(options, "prompt_logprobs")) {
    result.prompt_logprobs = *count;
  }
  if (auto call = Read<ffi::Optional<ffi::Function>>(options, "logits_processor")) {
    result.logits_processor = ToLogitsProcessor(*call, Read<ffi::Tensor>(options, "logits_buffer"));
  }
  if (auto grammar = Read<ffi::Optional<GrammarRef>>(options, "grammar")) {
    result.grammar = (*grammar)->matcher;
  }
  return result;
}

/*! \brief Submit a prompt of int32 token ids in native byte order. */
int64_t Submit(const CoreRef& core, const ffi::Bytes& prompt, const Options& options) {
  std::vector<int32_t> prompt_ids(prompt.size() / sizeof(int32_t));
  std::copy_n(prompt.data(), prompt_ids.size() * sizeof(int32_t),
              reinterpret_cast<char*>(prompt_ids.data()));
  return TranslateErrors(
      [&] { return core->engine.Submit(std::move(prompt_ids), ToSequenceOptions(options)); });
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

Options ToMap(const Histogram& histogram) {
  ffi::Array<double> bounds(histogram.bounds().begin(), histogram.bounds().end());
  const ffi::Shape counts(histogram.counts().begin(), histogram.counts().end());
  return {{"bounds", bounds}, {"counts", counts}, {"sum", histogram.sum()}};
}

Options ToMap(const LastFinished& last) {
  return {{"prompt_tokens", last.prompt_tokens},
          {"completion_tokens", last.completion_tokens},
          {"cached_tokens", last.cached_tokens},
          {"queue_seconds", last.timing.queue_seconds},
          {"first_token_seconds", last.timing.first_token_seconds},
          {"total_seconds", last.timing.total_seconds},
          {"forced_tokens", last.timing.forced_tokens}};
}

/*! \brief Flatten to [size, count, seconds] of each size that occurred. */
ffi::Array<ffi::Any> ToArray(const StepsBySize& steps) {
  ffi::Array<ffi::Any> result;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].count == 0) continue;
    result.push_back(static_cast<int64_t>(i + 1));
    result.push_back(steps[i].count);
    result.push_back(steps[i].seconds);
  }
  return result;
}

/*! \brief Flatten to [proposed, accepted] of each draft position that occurred. */
ffi::Shape ToShape(const std::array<DraftPositionCounts, 32>& positions) {
  std::vector<int64_t> values;
  for (const DraftPositionCounts& counts : positions) {
    if (counts.proposed == 0) break;
    values.push_back(counts.proposed);
    values.push_back(counts.accepted);
  }
  return ffi::Shape(values.begin(), values.end());
}

/*!
 * \brief Return the events from number `from`, serialized for
 * `aiomlc/runtime/native/record_codec.py`: the number of the first event, then the events.
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

Options GetStatistics(const CoreRef& core) {
  const Statistics statistics = core->engine.GetStatistics();
  return {{"num_running", statistics.num_running},
          {"num_waiting", statistics.num_waiting},
          {"num_paused", statistics.num_paused},
          {"total_pages", statistics.total_pages},
          {"free_pages", statistics.free_pages},
          {"num_recycling", statistics.num_recycling},
          {"num_pinned", statistics.num_pinned},
          {"prompt_tokens", statistics.prompt_tokens},
          {"completion_tokens", statistics.completion_tokens},
          {"steps", statistics.steps},
          {"prefix_cache_hits", statistics.prefix_cache_hits},
          {"cached_tokens", statistics.cached_tokens},
          {"prefill_tokens", statistics.prefill_tokens},
          {"decode_tokens", statistics.decode_tokens},
          {"draft_tokens", statistics.draft_tokens},
          {"accepted_tokens", statistics.accepted_tokens},
          {"forced_tokens", statistics.forced_tokens},
          {"prefill_seconds", statistics.prefill_seconds},
          {"decode_seconds", statistics.decode_seconds},
          {"forced_seconds", statistics.forced_seconds},
          {"preemptions", statistics.preemptions},
          {"ended", ffi::Shape(statistics.ended.begin(), statistics.ended.end())},
          {"decode_steps", ToArray(statistics.decode_steps)},
          {"verify_steps", ToArray(statistics.verify_steps)},
          {"draft_steps", ToArray(statistics.draft_steps)},
          {"draft_positions", ToShape(statistics.draft_positions)},
          {"verified_drafts", statistics.verified_drafts},
          {"draft_failures", statistics.draft_failures},
          {"speculation_failure", ffi::String(statistics.speculation_failure)},
          {"last_finished", ToMap(statistics.last_finished)},
          {"queue_seconds", ToMap(statistics.queue_seconds)},
          {"first_token_seconds", ToMap(statistics.first_token_seconds)},
          {"inter_token_seconds", ToMap(statistics.inter_token_seconds)},
          {"request_seconds", ToMap(statistics.request_seconds)},
          {"request_prompt_tokens", ToMap(statistics.request_prompt_tokens)},
          {"request_completion_tokens", ToMap(statistics.request_completion_tokens)},
          {"batch_size", ToMap(statistics.batch_size)}};
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<ModelObj>();
  refl::ObjectDef<CoreObj>();
  refl::GlobalDef()
      .def("aiomlc.physical_cores", PhysicalCores)
      .def("aiomlc.model_open", OpenModel)
      .def("aiomlc.model_add_sequence",
           [](const ModelRef& model, int64_t id) { model->model->AddSequence(id); })
      .def("aiomlc.model_fork_sequence",
           [](const ModelRef& model, int64_t source_id, int64_t id, int64_t num_tokens) {
             model->model->ForkSequence(source_id, id, num_tokens);
           })
      .def("aiomlc.model_remove_sequence",
           [](const ModelRef& model, int64_t id) { model->model->RemoveSequence(id); })
      .def("aiomlc.model_free_pages",
           [](const ModelRef& model) { return model->model->FreePages(); })
      .def("aiomlc.model_forward", RunForward)
      .def("aiomlc.core_create", CreateCore)
      .def("aiomlc.core_submit", Submit)
      .def("aiomlc.core_cancel", [](const CoreRef& core, int64_t id) { core->engine.Cancel(id); })
      .def("aiomlc.core_pause", [](const CoreRef& core, int64_t id) { core->engine.Pause(id); })
      .def("aiomlc.core_resume", [](const CoreRef& core, int64_t id) { core->engine.Resume(id); })
      .def("aiomlc.core_unpin", [](const CoreRef& core, int64_t id) { core->engine.Unpin(id); })
      .def("aiomlc.core_reset", [](const CoreRef& core) { core->engine.Reset(); })
      .def("aiomlc.core_run",
           [](const CoreRef& core) { TranslateErrors([&] { core->engine.Run(); }); })
      .def("aiomlc.core_stop", [](const CoreRef& core) { core->engine.Stop(); })
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
