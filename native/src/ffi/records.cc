#include "ffi/records.h"

#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "options/engine_error.h"

namespace aiomlc {

namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

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

SpeculativeMode SpeculativeModeNamed(const std::string& name) {
  if (name == "disable") return SpeculativeMode::kDisable;
  if (name == "prompt_lookup") return SpeculativeMode::kPromptLookup;
  if (name == "small_draft") return SpeculativeMode::kSmallDraft;
  throw EngineError(ErrorKind::kBadRequest,
                    "speculative_mode must be disable, prompt_lookup or small_draft, got " + name);
}

/*! \return [size, count, seconds] of each size that occurred. */
std::vector<std::vector<double>> ToRows(const StepsBySize& steps) {
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].count == 0) continue;
    rows.push_back(
        {static_cast<double>(i + 1), static_cast<double>(steps[i].count), steps[i].seconds});
  }
  return rows;
}

/*! \return [proposed, accepted] of each draft position that occurred. */
std::vector<std::vector<int64_t>> ToRows(const std::array<DraftPositionCounts, 32>& positions) {
  std::vector<std::vector<int64_t>> rows;
  for (const DraftPositionCounts& counts : positions) {
    if (counts.proposed == 0) break;
    rows.push_back({counts.proposed, counts.accepted});
  }
  return rows;
}

using Record = RecordRef<HistogramObj>;

/*! \brief Define a method that returns a histogram. */
void DefineHistogram(refl::ObjectDef<StatisticsObj>* def, const char* name,
                     Histogram Statistics::* member) {
  def->def(name, [member](const StatisticsObj* self) {
    return Record(ffi::make_object<HistogramObj>(self->*member));
  });
}

}  // namespace

SequenceOptions SequenceOptionsObj::ToNative() const {
  SequenceOptions options;
  options.sampling = *this;
  options.logits = *this;
  for (const auto& [token_id, bias] : logit_bias) {
    options.logits.logit_bias.push_back({token_id, bias});
  }
  options.time_limits = *this;
  options.max_tokens = max_tokens;
  options.min_tokens = min_tokens;
  if (seed.has_value()) options.seed = static_cast<uint64_t>(*seed);
  options.stop = stop;
  options.stop_token_ids = stop_token_ids;
  options.suppress_tokens = suppress_tokens;
  options.top_logprobs = top_logprobs;
  options.prompt_logprobs = prompt_logprobs;
  options.priority = priority;
  options.is_pinned = is_pinned;
  if (grammar.has_value()) options.grammar = grammar.value()->matcher;
  if (logits_processor.has_value()) {
    options.logits_processor = ToLogitsProcessor(logits_processor.value(), logits_buffer.value());
  }
  return options;
}

PromptPiece PromptPieceObj::ToNative(size_t index) const {
  const auto require = [&](bool condition, const char* message) {
    if (condition) return;
    throw EngineError(ErrorKind::kBadRequest,
                      "prompt.pieces[" + std::to_string(index) + "]." + message);
  };
  PromptPiece piece;
  require(digest.size() == piece.key.digest.size(), "digest must have 32 bytes, as SHA-256");
  require(rows.has_value() && rows.value().ndim() == 2 && rows.value().IsContiguous() &&
              rows.value().dtype() == DLDataType{kDLFloat, 32, 1} &&
              rows.value().device().device_type == kDLCPU,
          "rows must be a contiguous float32[positions, row size] in the memory of the CPU");
  const ffi::Tensor tensor = rows.value();
  piece.key.begin = begin;
  piece.key.num_positions = tensor.size(0);
  std::copy_n(digest.data(), piece.key.digest.size(), piece.key.digest.begin());
  piece.row_size = tensor.size(1);
  if (grid.has_value()) {
    require(grid.value().size() == 3, "grid must have 3 sizes: time, height and width");
    piece.key.grid = {grid.value()[0], grid.value()[1], grid.value()[2]};
    require(piece.key.grid != PieceGrid(), "grid must have a size of at least 1");
  }
  piece.rows = {static_cast<const float*>(tensor.data_ptr()), [tensor](const float*) {}};
  return piece;
}

EngineOptions EngineOptionsObj::ToNative() const {
  EngineOptions options = *this;
  options.speculative_mode = SpeculativeModeNamed(speculative_mode_name);
  return options;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<SequenceOptionsObj> options;
  ForEachParameter(
      [&](const auto& parameter) { options.def_rw(parameter.name, parameter.member); });
  options.def(refl::init<>())
      .def_rw("logit_bias", &SequenceOptionsObj::logit_bias)
      .def_rw("max_tokens", &SequenceOptionsObj::max_tokens)
      .def_rw("min_tokens", &SequenceOptionsObj::min_tokens)
      .def_rw("seed", &SequenceOptionsObj::seed)
      .def_rw("stop", &SequenceOptionsObj::stop)
      .def_rw("stop_token_ids", &SequenceOptionsObj::stop_token_ids)
      .def_rw("suppress_tokens", &SequenceOptionsObj::suppress_tokens)
      .def_rw("top_logprobs", &SequenceOptionsObj::top_logprobs)
      .def_rw("prompt_logprobs", &SequenceOptionsObj::prompt_logprobs)
      .def_rw("priority", &SequenceOptionsObj::priority)
      .def_rw("is_pinned", &SequenceOptionsObj::is_pinned)
      .def_rw("grammar", &SequenceOptionsObj::grammar)
      .def_rw("logits_processor", &SequenceOptionsObj::logits_processor)
      .def_rw("logits_buffer", &SequenceOptionsObj::logits_buffer);
  refl::ObjectDef<PromptPieceObj>()
      .def(refl::init<>())
      .def_rw("begin", &PromptPieceObj::begin)
      .def_rw("digest", &PromptPieceObj::digest)
      .def_rw("rows", &PromptPieceObj::rows)
      .def_rw("grid", &PromptPieceObj::grid);
  refl::ObjectDef<EngineOptionsObj>()
      .def(refl::init<>())
      .def_rw("step_token_budget", &EngineOptions::step_token_budget)
      .def_rw("idle_step_token_budget", &EngineOptions::idle_step_token_budget)
      .def_rw("max_recycling_sequences", &EngineOptions::max_recycling_sequences)
      .def_rw("max_queue_size", &EngineOptions::max_queue_size)
      .def_rw("separate_prefill", &EngineOptions::separate_prefill)
      .def_rw("speculative_mode", &EngineOptionsObj::speculative_mode_name)
      .def_rw("draft_length", &EngineOptions::draft_length);
  refl::ObjectDef<ModelShapeObj>()
      .def(refl::init<>())
      .def_rw("vocab_size", &ModelShape::vocab_size)
      .def_rw("context_window", &ModelShape::context_window)
      .def_rw("max_batch_size", &ModelShape::max_batch_size)
      .def_rw("prefill_chunk_size", &ModelShape::prefill_chunk_size)
      .def_rw("max_total_tokens", &ModelShape::max_total_tokens)
      .def_rw("num_layers", &ModelShape::num_layers)
      .def_rw("num_query_heads", &ModelShape::num_query_heads)
      .def_rw("num_kv_heads", &ModelShape::num_kv_heads)
      .def_rw("kv_row_size", &ModelShape::kv_row_size)
      .def_rw("kv_dtype", &ModelShape::kv_dtype)
      .def_rw("recurrent_sizes", &ModelShapeObj::recurrent_sizes_shape)
      .def_rw("num_slots", &ModelShape::num_slots)
      .def_rw("checkpoint_interval", &ModelShape::checkpoint_interval)
      .def_rw("embedded_row_size", &ModelShape::embedded_row_size)
      .def_rw("needs_whole_pieces", &ModelShape::needs_whole_pieces)
      .def_rw("num_piece_layers", &ModelShape::num_piece_layers)
      .def_rw("rope_axes", &ModelShapeObj::rope_axes_shape);
  refl::ObjectDef<FaultsObj>()
      .def(refl::init<>())
      .def_rw("fail_at_pass", &Faults::fail_at_pass)
      .def_rw("allocation_fails_at_load", &FaultsObj::allocation_fails_at_load)
      .def_rw("allocation_fails_at_pass", &Faults::allocation_fails_at_pass)
      .def_rw("nan_at_pass", &Faults::nan_at_pass)
      .def_rw("nan_every", &Faults::nan_every)
      .def_rw("fail_at_import", &Faults::fail_at_import);
  refl::ObjectDef<HistogramObj>(refl::init(false))
      .def_ro("bounds", &HistogramObj::bounds)
      .def_ro("counts", &HistogramObj::counts)
      .def_ro("sum", &HistogramObj::sum);
  refl::ObjectDef<LastFinishedObj>(refl::init(false))
      .def_ro("prompt_tokens", &LastFinished::prompt_tokens)
      .def_ro("completion_tokens", &LastFinished::completion_tokens)
      .def_ro("cached_tokens", &LastFinished::cached_tokens)
      .def_ro("queue_seconds", &RequestTiming::queue_seconds)
      .def_ro("first_token_seconds", &RequestTiming::first_token_seconds)
      .def_ro("total_seconds", &RequestTiming::total_seconds)
      .def_ro("forced_tokens", &RequestTiming::forced_tokens);
  refl::ObjectDef<StatisticsObj> statistics(refl::init(false));
  statistics.def_ro("num_running", &Statistics::num_running)
      .def_ro("num_waiting", &Statistics::num_waiting)
      .def_ro("num_paused", &Statistics::num_paused)
      .def_ro("total_pages", &Statistics::total_pages)
      .def_ro("free_pages", &Statistics::free_pages)
      .def_ro("total_slots", &Statistics::total_slots)
      .def_ro("free_slots", &Statistics::free_slots)
      .def_ro("num_recycling", &Statistics::num_recycling)
      .def_ro("num_pinned", &Statistics::num_pinned)
      .def_ro("prompt_tokens", &Statistics::prompt_tokens)
      .def_ro("completion_tokens", &Statistics::completion_tokens)
      .def_ro("steps", &Statistics::steps)
      .def_ro("prefix_cache_hits", &Statistics::prefix_cache_hits)
      .def_ro("cached_tokens", &Statistics::cached_tokens)
      .def_ro("prefill_tokens", &Statistics::prefill_tokens)
      .def_ro("decode_tokens", &Statistics::decode_tokens)
      .def_ro("draft_tokens", &Statistics::draft_tokens)
      .def_ro("accepted_tokens", &Statistics::accepted_tokens)
      .def_ro("forced_tokens", &Statistics::forced_tokens)
      .def_ro("prefill_seconds", &Statistics::prefill_seconds)
      .def_ro("decode_seconds", &Statistics::decode_seconds)
      .def_ro("forced_seconds", &Statistics::forced_seconds)
      .def_ro("preemptions", &Statistics::preemptions)
      .def_ro("verified_drafts", &Statistics::verified_drafts)
      .def_ro("draft_failures", &Statistics::draft_failures)
      .def_ro("speculation_failure", &Statistics::speculation_failure)
      // A method, because Python would look up the type of the field, std::array, in vain: the
      // backtrace of the process's first error takes 300 ms.
      .def("ended",
           [](const StatisticsObj* self) {
             return std::vector<int64_t>(self->ended.begin(), self->ended.end());
           })
      .def("decode_steps", [](const StatisticsObj* self) { return ToRows(self->decode_steps); })
      .def("verify_steps", [](const StatisticsObj* self) { return ToRows(self->verify_steps); })
      .def("draft_steps", [](const StatisticsObj* self) { return ToRows(self->draft_steps); })
      .def("draft_positions",
           [](const StatisticsObj* self) { return ToRows(self->draft_positions); })
      .def("last_finished", [](const StatisticsObj* self) {
        return RecordRef<LastFinishedObj>(ffi::make_object<LastFinishedObj>(self->last_finished));
      });
  DefineHistogram(&statistics, "queue_seconds", &Statistics::queue_seconds);
  DefineHistogram(&statistics, "first_token_seconds", &Statistics::first_token_seconds);
  DefineHistogram(&statistics, "inter_token_seconds", &Statistics::inter_token_seconds);
  DefineHistogram(&statistics, "request_seconds", &Statistics::request_seconds);
  DefineHistogram(&statistics, "request_prompt_tokens", &Statistics::request_prompt_tokens);
  DefineHistogram(&statistics, "request_completion_tokens", &Statistics::request_completion_tokens);
  DefineHistogram(&statistics, "batch_size", &Statistics::batch_size);
}

}  // namespace aiomlc
