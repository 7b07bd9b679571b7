/*!
 * \file kernels/attention/layer_attention.h
 * \brief The attention of one layer, assembled from the calls by TVM's paged KV cache.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"

namespace aiomlc {

/*! \brief The settings of a layer that the calls by the KV cache do not contain. */
struct LayerSettings {
  AttentionWindow window = {};
  float soft_cap = 0.0f;               //!< See `AttentionShape`.
  const float* sink_scores = nullptr;  //!< See `AttentionShape`.
  int64_t num_sink_scores = 0;
  /*! \brief This layer's slice of the `rotation` tensor, which the cache passes to every layer. */
  int64_t rotation_begin = 0;
  int64_t rotation_size = 0;  //!< 0: all of it.
  /*! \brief Whether the rows of a piece of the pass see each other; see `PassPieces`. */
  bool sees_whole_pieces = false;
  /*!
   * \brief The heads of the layer, if the tensors of the cache have other ones, whose memory is at
   * least as large; no heads otherwise.
   */
  HeadLayout heads = {};
};

/*! \brief The queries and the output of one call by the KV cache. */
struct AttentionCall {
  AttentionShape shape;
  const void* queries = nullptr;
  void* output = nullptr;
  int64_t num_rows = 0;
  const int32_t* positions = nullptr;  //!< [num_rows]
};

/*! \brief The tokens of this step, which are not in the pages yet. */
struct NewTokens {
  int64_t num_sequences = 0;
  const int32_t* row_indptr = nullptr;       //!< [num_sequences + 1]
  const int32_t* history_lengths = nullptr;  //!< [num_sequences], tokens already in the pages
  const void* keys = nullptr;                //!< [num_rows, num_kv_heads, head_dim]
  const void* values = nullptr;
};

/*! \brief One depth of TVM's page table: the pages of each group of rows; a group may have none. */
struct PageSegments {
  int64_t num_groups = 0;
  const int32_t* row_indptr = nullptr;  //!< [num_groups + 1]; null if group i is row i
  const void* pages = nullptr;          //!< [num_pages, 2, num_kv_heads, 16, head_dim]
  int64_t num_pages = 0;
  const int32_t* page_indptr = nullptr;  //!< [num_groups + 1]
  const int32_t* page_ids = nullptr;     //!< [page_indptr[num_groups]]
  int64_t num_page_ids = 0;
  const int32_t* last_page_lengths = nullptr;  //!< [num_groups]
  const int32_t* first_positions = nullptr;    //!< [num_groups]
  size_t page_stride = 0;  //!< Bytes from a page to the next; 0: those of the layer's heads.
};

/*!
 * \brief Gathers the segments of all rows of a layer, and then computes its attention once.
 *
 * TVM's cache calls one function per kind and depth of segment (new tokens, pages shared by forks,
 * unshared pages) and merges the partial results. The bits of merged results would depend on where
 * the segments end, which depends on chunked prefill and on forks.
 *
 * Only one of the calls computes. `Begin`, `AddNewTokens` and `AddPages` only
 * record pointers to queries, new tokens and pages, until the pages cover the history of every
 * row. The call to `AddNewTokens` or `AddPages` that completes the last history then computes the
 * attention of all rows and writes it to the output of the first call. Later calls to `AddPages`
 * add nothing, and `CheckMerge` and `CheckAppend` only check the order of the calls: there are no
 * partial results to merge. The figure at the top of ffi/cpu/kv_cache.cc shows the order.
 *
 * The tensors of all calls must stay alive until the computing call returns; TVM keeps them alive.
 * Every method throws std::logic_error and resets the state if the calls arrive in an order, or
 * with contents, that TVM is not known to produce.
 */
class LayerAttention {
 public:
  LayerAttention();
  ~LayerAttention();
  LayerAttention(const LayerAttention&) = delete;
  LayerAttention& operator=(const LayerAttention&) = delete;

  /*! \return The instance of this thread; TVM makes all calls for a layer on one thread. */
  static LayerAttention& Current();

  /*! \brief Applies settings to the layers that are computed during its lifetime. */
  class SettingsScope {
   public:
    SettingsScope(LayerAttention& layer, const LayerSettings& settings) : layer_(layer) {
      layer.settings_ = settings;
    }
    ~SettingsScope() { layer_.settings_ = {}; }
    SettingsScope(const SettingsScope&) = delete;
    SettingsScope& operator=(const SettingsScope&) = delete;

   private:
    LayerAttention& layer_;
  };

  /*! \return The settings of the current scope; the defaults outside of any scope. */
  const LayerSettings& settings() const { return settings_; }

  /*! \brief Begin a new layer. */
  void Begin();

  /*!
   * \brief Record the step's new tokens, which attention must see before they are in the pages.
   *
   * Computes the layer if no sequence has a history.
   */
  void AddNewTokens(ThreadPool& pool, const AttentionCall& call, const NewTokens& tokens);

  /*!
   * \brief Record more pages of some rows, in ascending order of position.
   *
   * Computes the layer if the pages now cover the history of every row. Without a preceding
   * `AddNewTokens`, the tokens of the step are in the pages already.
   */
  void AddPages(ThreadPool& pool, const AttentionCall& call, const PageSegments& segments);

  /*! \brief Check the state when TVM merges two partial results. */
  void CheckMerge();

  /*! \brief Check the state when TVM writes new keys and values to the pages. */
  void CheckAppend();

 private:
  enum class State { kIdle, kStarted, kGathering, kComplete };
  struct Sequence;

  /*! \brief Reset the state and throw std::logic_error. */
  [[noreturn]] void Fail(const std::string& message);
  /*! \brief Take the queries and the output of the first call for the layer. */
  void StartGathering(const AttentionCall& call);
  /*! \return A sequence without pages, after the previous sequences of the layer. */
  Sequence& NextSequence();
  /*! \brief Treat each row as a sequence whose positions are all in the pages. */
  void AddRowsAsSequences();
  /*! \brief Add those pages of a group's segment that hold the sequence's history. */
  void AddSegment(const PageSegments& segments, int64_t group, Sequence& sequence);
  void ComputeIfComplete(ThreadPool& pool);
  /*! \brief Add the rows of a sequence to `rows_`, those of each piece apart. */
  void AddRows(const Sequence& sequence);
  /*! \brief Copy the first `num_slots` slots of a page; other values in `target` stay unchanged. */
  void CopyHistory(const std::byte* source, int64_t num_slots, std::byte* target) const;
  /*! \brief Write the new tokens to scratch pages, and append these to the sequences. */
  void PageNewTokens(ThreadPool& pool);

  State state_ = State::kIdle;
  bool has_new_tokens_ = false;
  LayerSettings settings_;
  AttentionCall call_;
  NewTokens tokens_;
  // Only the first `num_sequences_` belong to the current layer; the others keep the memory of
  // their page lists for later layers.
  std::vector<Sequence> sequences_;
  size_t num_sequences_ = 0;
  std::vector<AttentionRows> rows_;
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_
