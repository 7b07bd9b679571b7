/*!
 * \file ffi/records.h
 * \brief The FFI structs: reflected objects with a field for each value.
 *
 * A field has the same name in Python (`aiomlc/sampling_params.py`,
 * `aiomlc/runtime/engine/core_protocol.py`); `aiomlc/runtime/native/records.py` reads and writes
 * them by name.
 */
#ifndef AIOMLC_FFI_RECORDS_H_
#define AIOMLC_FFI_RECORDS_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/stl.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_options.h"
#include "ffi/grammar.h"
#include "metrics/statistics.h"
#include "model/faulty_model.h"
#include "model/tvm_model.h"
#include "options/sequence_options.h"
#include "prompt/prompt.h"

namespace aiomlc {

/*! \brief A reference to an FFI struct of type `Record`. */
template <typename Record>
class RecordRef : public tvm::ffi::ObjectRef {
 public:
  explicit RecordRef(tvm::ffi::ObjectPtr<Record> record) : ObjectRef(std::move(record)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(RecordRef, tvm::ffi::ObjectRef, Record);
};

/*! \brief The options of one sequence. Sampling parameters need no conversion. */
class SequenceOptionsObj : public tvm::ffi::Object,
                           public SamplerOptions,
                           public LogitOptions,
                           public TimeLimits {
 public:
  std::map<int64_t, double> logit_bias;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  /*! \brief The bits of the unsigned seed. */
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> suppress_tokens;
  std::optional<int64_t> top_logprobs;
  std::optional<int64_t> prompt_logprobs;
  int64_t priority = 0;
  bool is_pinned = false;
  tvm::ffi::Optional<GrammarRef> grammar;
  /*!
   * \brief Takes the token ids since its last call, changes the logits in `logits_buffer` and
   * returns whether it succeeded.
   */
  tvm::ffi::Optional<tvm::ffi::Function> logits_processor;
  /*! \brief float32[vocab_size], owned by Python, so that what a processor keeps stays valid. */
  tvm::ffi::Optional<tvm::ffi::Tensor> logits_buffer;

  SequenceOptions ToNative() const;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.SequenceOptions", SequenceOptionsObj, tvm::ffi::Object);
};

/*! \brief An embedded piece of a prompt. */
class PromptPieceObj : public tvm::ffi::Object {
 public:
  int64_t begin = 0;
  /*! \brief 32 bytes. */
  tvm::ffi::Bytes digest;
  /*! \brief float32[positions, row size], which is not copied. */
  tvm::ffi::Optional<tvm::ffi::Tensor> rows;
  /*! \brief Rows in time, height and width. */
  tvm::ffi::Optional<tvm::ffi::Shape> grid;

  /*! \throws EngineError kBadRequest that names the field. */
  PromptPiece ToNative(size_t index) const;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.PromptPiece", PromptPieceObj, tvm::ffi::Object);
};

/*! \brief The settings of an engine. */
class EngineOptionsObj : public tvm::ffi::Object, public EngineOptions {
 public:
  /*! \brief "disable", "prompt_lookup" or "small_draft". */
  std::string speculative_mode_name = "disable";

  /*! \throws EngineError kBadRequest for an unknown mode. */
  EngineOptions ToNative() const;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.EngineOptions", EngineOptionsObj, tvm::ffi::Object);
};

/*! \brief The sizes of a model and of its KV cache. */
class ModelShapeObj : public tvm::ffi::Object, public ModelShape {
 public:
  tvm::ffi::Shape recurrent_sizes_shape;
  tvm::ffi::Shape rope_axes_shape;

  ModelShape ToNative() const {
    ModelShape shape = *this;
    shape.rope_axes.assign(rope_axes_shape.begin(), rope_axes_shape.end());
    shape.recurrent_sizes.assign(recurrent_sizes_shape.begin(), recurrent_sizes_shape.end());
    return shape;
  }

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.ModelShape", ModelShapeObj, tvm::ffi::Object);
};

/*! \brief Faults to inject into a model, for tests. */
class FaultsObj : public tvm::ffi::Object, public Faults {
 public:
  bool allocation_fails_at_load = false;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Faults", FaultsObj, tvm::ffi::Object);
};

/*! \brief A snapshot of the engine's counters. */
class StatisticsObj : public tvm::ffi::Object, public Statistics {
 public:
  explicit StatisticsObj(Statistics statistics) : Statistics(std::move(statistics)) {}

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Statistics", StatisticsObj, tvm::ffi::Object);
};

/*! \brief The counts of a histogram. */
class HistogramObj : public tvm::ffi::Object {
 public:
  explicit HistogramObj(const Histogram& histogram)
      : bounds(histogram.bounds().begin(), histogram.bounds().end()),
        counts(histogram.counts().begin(), histogram.counts().end()),
        sum(histogram.sum()) {}

  std::vector<double> bounds;
  std::vector<int64_t> counts;
  double sum;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Histogram", HistogramObj, tvm::ffi::Object);
};

/*! \brief The sequence that last completed normally. */
class LastFinishedObj : public tvm::ffi::Object, public LastFinished, public RequestTiming {
 public:
  explicit LastFinishedObj(const LastFinished& last)
      : LastFinished(last), RequestTiming(last.timing) {}

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.LastFinished", LastFinishedObj, tvm::ffi::Object);
};

}  // namespace aiomlc

#endif  // AIOMLC_FFI_RECORDS_H_
