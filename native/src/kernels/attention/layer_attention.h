/*!
 * \file kernels/attention/layer_attention.h
 * \brief The attention of one layer, put together from the calls of TVM's paged KV cache.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"

namespace aiomlc {

/*! \brief What the calls of the KV cache do not say of a layer. */
struct LayerSettings {
  AttentionWindow window = {};
  float soft_cap = 0.0f;  //!< As in `AttentionShape`.
  /*! \brief The layer's part of what the cache hands to every layer's rotation, in floats. */
  int64_t rotation_begin = 0;
  int64_t rotation_size = 0;  //!< 0 is all.
};

/*! \brief Queries and output of one call of the KV cache. */
struct AttentionCall {
  AttentionShape shape;
  const void* queries = nullptr;
  void* output = nullptr;
  int64_t num_rows = 0;
  const int32_t* positions = nullptr;  //!< [num_rows]
};

/*! \brief Tokens that are in this step and not yet in the pages. */
struct NewTokens {
  int64_t num_sequences = 0;
  const int32_t* row_indptr = nullptr;       //!< [num_sequences + 1]
  const int32_t* history_lengths = nullptr;  //!< [num_sequences], tokens in the pages
  const void* keys = nullptr;                //!< [num_rows, num_kv_heads, head_dim]
  const void* values = nullptr;
};

/*! \brief One segment of pages for each of some groups of rows; no pages means no segment. */
struct PageSegments {
  int64_t num_groups = 0;
  const int32_t* row_indptr = nullptr;  //!< [num_groups + 1]; null: group i is row i
  const void* pages = nullptr;          //!< [num_pages, 2, num_kv_heads, 16, head_dim]
  int64_t num_pages = 0;
  const int32_t* page_indptr = nullptr;  //!< [num_groups + 1]
  const int32_t* page_ids = nullptr;     //!< [page_indptr[num_groups]]
  int64_t num_page_ids = 0;
  const int32_t* last_page_lengths = nullptr;  //!< [num_groups]
  const int32_t* first_positions = nullptr;    //!< [num_groups]
};

/*!
 * \brief Gathers the segments of every row, and then computes attention once.
 *
 * TVM's cache calls a function per kind and depth of segment (new tokens, pages shared by forks,
 * own pages) and merges their partial results. The bits of merged results depend on where the
 * segments end, that is on chunking and forking. Here the calls only describe the segments; the
 * call that completes every row's history computes all rows over their whole history, in the
 * output of the first call, and merging has nothing left to do.
 *
 * Between `Begin` and the call that completes the history, the tensors of all calls must stay
 * alive; TVM's do. Every method throws std::logic_error, and forgets the layer, when the calls
 * contradict what TVM is known to do.
 */
class LayerAttention {
 public:
  LayerAttention();
  ~LayerAttention();
  LayerAttention(const LayerAttention&) = delete;
  LayerAttention& operator=(const LayerAttention&) = delete;

  /*! \return The calling thread's: TVM makes all calls of a layer on one thread. */
  static LayerAttention& Current();

  /*! \brief The settings of the layers that are computed while it lives. */
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

  /*! \return Those of the innermost scope; outside of every one, those of a plain layer. */
  const LayerSettings& settings() const { return settings_; }

  /*! \brief A new layer begins. */
  void Begin();

  /*! \brief The step has tokens that attention must see before they are in the pages. */
  void AddNewTokens(ThreadPool& pool, const AttentionCall& call, const NewTokens& tokens);

  /*! \brief More pages of some rows, in ascending order of position. */
  void AddPages(ThreadPool& pool, const AttentionCall& call, const PageSegments& segments);

  /*! \brief The cache would merge two partial results now. */
  void CheckMerge();

  /*! \brief The cache writes new keys and values to its pages now. */
  void CheckAppend();

 private:
  enum class State { kIdle, kStarted, kGathering, kComplete };
  struct Sequence;

  [[noreturn]] void Fail(const std::string& message);
  void Open(const AttentionCall& call);
  Sequence& NextSequence();
  void AddRowsAsSequences();
  void AddSegment(const PageSegments& segments, int64_t group, Sequence& sequence);
  void ComputeIfComplete(ThreadPool& pool);
  void CopyHistory(const std::byte* source, int64_t filled, std::byte* target) const;
  void PageNewTokens(ThreadPool& pool);

  State state_ = State::kIdle;
  bool has_new_tokens_ = false;
  LayerSettings settings_;
  AttentionCall call_;
  NewTokens tokens_;
  // Sequences keep the memory of their page lists from layer to layer: only the first
  // `num_sequences_` are of this layer.
  std::vector<Sequence> sequences_;
  size_t num_sequences_ = 0;
  std::vector<AttentionRows> rows_;
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_LAYER_ATTENTION_H_
