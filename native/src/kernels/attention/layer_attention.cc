/*!
 * \file kernels/attention/layer_attention.cc
 * \brief Gathering the pages of every sequence, paging the new tokens, and computing attention.
 */
#include "kernels/attention/layer_attention.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "kernels/attention/kv_pages.h"
#include "kernels/attention/pass_pieces.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

/*! \brief The rows of one sequence, and its pages so far. */
struct LayerAttention::Sequence {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t first_position = 0;
  int64_t history = 0;  //!< The number of positions that must come from the cache's pages.
  int64_t covered = 0;  //!< The number of these positions that `pages` contains.
  std::vector<const void*> pages;
};

/*! \brief Pages for the new tokens of a step, with the layout of the cache's pages. */
struct LayerAttention::Scratch {
  struct Page {
    const Sequence* sequence;
    int64_t index;  //!< The index of the page in the sequence.
    /*! \brief The cache's page with the positions before the new tokens, or null. */
    const std::byte* history;
  };

  AlignedBuffer bytes;
  std::vector<Page> pages;
};

LayerAttention::LayerAttention() : scratch_(std::make_unique<Scratch>()) {}
LayerAttention::~LayerAttention() = default;

LayerAttention& LayerAttention::Current() {
  thread_local LayerAttention current;
  return current;
}

void LayerAttention::Fail(const std::string& message) {
  state_ = State::kIdle;
  throw std::logic_error("paged attention: " + message);
}

void LayerAttention::Begin() {
  if (state_ == State::kGathering) Fail("the pages of the previous layer were never complete");
  state_ = State::kStarted;
  has_new_tokens_ = false;
  num_sequences_ = 0;
}

void LayerAttention::StartGathering(const AttentionCall& call) {
  call_ = call;
  state_ = State::kGathering;
}

LayerAttention::Sequence& LayerAttention::NextSequence() {
  if (num_sequences_ == sequences_.size()) sequences_.emplace_back();
  Sequence& sequence = sequences_[num_sequences_++];
  sequence.covered = 0;
  sequence.pages.clear();
  return sequence;
}

void LayerAttention::AddNewTokens(ThreadPool& pool, const AttentionCall& call,
                                  const NewTokens& tokens) {
  if (state_ != State::kStarted) Fail("AddNewTokens must be the first call after Begin");
  StartGathering(call);
  has_new_tokens_ = true;
  tokens_ = tokens;
  for (int64_t i = 0; i < tokens.num_sequences; ++i) {
    Sequence& sequence = NextSequence();
    sequence.row_begin = tokens.row_indptr[i];
    sequence.row_end = tokens.row_indptr[i + 1];
    sequence.first_position = tokens.history_lengths[i];
    sequence.history = sequence.first_position;
    const int64_t previous_end = i == 0 ? 0 : sequences_[i - 1].row_end;
    if (sequence.row_begin != previous_end || sequence.row_end < sequence.row_begin ||
        sequence.row_end > call.num_rows) {
      Fail("the rows of the sequences must be consecutive");
    }
    for (int64_t row = sequence.row_begin; row < sequence.row_end; ++row) {
      if (call.positions[row] != sequence.first_position + row - sequence.row_begin) {
        Fail("the positions of a sequence must be consecutive");
      }
    }
  }
  ComputeIfComplete(pool);
}

void LayerAttention::AddRowsAsSequences() {
  for (int64_t row = 0; row < call_.num_rows; ++row) {
    Sequence& sequence = NextSequence();
    sequence.row_begin = row;
    sequence.row_end = row + 1;
    sequence.first_position = call_.positions[row];
    sequence.history = sequence.first_position + 1;
  }
}

void LayerAttention::AddPages(ThreadPool& pool, const AttentionCall& call,
                              const PageSegments& segments) {
  if (state_ == State::kStarted) {
    StartGathering(call);
    AddRowsAsSequences();
  } else if (state_ == State::kIdle) {
    Fail("AddPages was called before Begin");
  }
  if (call.num_rows != call_.num_rows || call.shape != call_.shape ||
      call.queries != call_.queries) {
    Fail("all calls for a layer must have the same queries");
  }
  size_t next = 0;
  for (int64_t group = 0; group < segments.num_groups; ++group) {
    const int64_t begin = segments.row_indptr == nullptr ? group : segments.row_indptr[group];
    const int64_t end = segments.row_indptr == nullptr ? group + 1 : segments.row_indptr[group + 1];
    for (; next < num_sequences_ && sequences_[next].row_begin < end; ++next) {
      Sequence& sequence = sequences_[next];
      if (sequence.row_begin < begin || sequence.row_end > end) {
        Fail("a segment must not cover only some rows of a sequence");
      }
      AddSegment(segments, group, sequence);
    }
  }
  if (state_ == State::kGathering) ComputeIfComplete(pool);
}

void LayerAttention::AddSegment(const PageSegments& segments, int64_t group, Sequence& sequence) {
  const int64_t id_begin = segments.page_indptr[group];
  const int64_t id_end = segments.page_indptr[group + 1];
  if (id_begin == id_end) return;
  if (id_begin < 0 || id_end < id_begin || id_end > segments.num_page_ids) {
    Fail("page_indptr is out of range");
  }
  // The pages may include slots that are reserved for the new tokens; these are not read.
  const int64_t begin = segments.first_positions[group];
  const int64_t length = (id_end - id_begin - 1) * kPageSize + segments.last_page_lengths[group];
  const int64_t end = std::min(begin + length, sequence.history);
  if (end <= begin) return;
  if (begin % kPageSize != 0 || begin != sequence.covered) {
    Fail("the next segment must begin at position " + std::to_string(sequence.covered) +
         " and at a page boundary, got position " + std::to_string(begin));
  }
  const auto* base = static_cast<const std::byte*>(segments.pages);
  const size_t stride = segments.page_stride == 0 ? call_.shape.PageBytes() : segments.page_stride;
  const int64_t num_pages = (end - begin + kPageSize - 1) / kPageSize;
  for (int64_t i = 0; i < num_pages; ++i) {
    const int64_t page_id = segments.page_ids[id_begin + i];
    if (page_id < 0 || page_id >= segments.num_pages) Fail("a page id is out of range");
    sequence.pages.push_back(base + page_id * static_cast<int64_t>(stride));
  }
  sequence.covered = end;
}

void LayerAttention::ComputeIfComplete(ThreadPool& pool) {
  for (size_t i = 0; i < num_sequences_; ++i) {
    if (sequences_[i].covered != sequences_[i].history) return;
  }
  state_ = State::kComplete;
  if (has_new_tokens_) PageNewTokens(pool);
  rows_.clear();
  for (size_t i = 0; i < num_sequences_; ++i) {
    AddRows(sequences_[i]);
  }
  AttentionShape shape = call_.shape;
  shape.window = settings_.window;
  shape.soft_cap = settings_.soft_cap;
  if (settings_.sink_scores != nullptr && settings_.num_sink_scores != shape.num_query_heads) {
    Fail("there must be one sink score per query head");
  }
  shape.sink_scores = settings_.sink_scores;
  Attend(pool, shape, rows_, call_.queries, call_.output);
}

void LayerAttention::AddRows(const Sequence& sequence) {
  int64_t next = sequence.row_begin;
  const auto add = [&](int64_t end, bool see_each_other) {
    if (next == end) return;
    rows_.push_back({next, end - next, sequence.first_position + next - sequence.row_begin,
                     sequence.pages.data(), see_each_other});
    next = end;
  };
  const PassPieces* const pass = settings_.sees_whole_pieces ? PassPieces::Current() : nullptr;
  if (pass != nullptr) {
    for (const PieceRows& piece : pass->pieces) {
      if (piece.begin < next || piece.end() > sequence.row_end) continue;
      add(piece.begin, false);
      add(piece.end(), true);
    }
  }
  add(sequence.row_end, false);
}

// Keys and scales are copied for all 16 slots, because the slots of a key plane are interleaved.
void LayerAttention::CopyHistory(const std::byte* source, int64_t num_slots,
                                 std::byte* target) const {
  const AttentionShape& shape = call_.shape;
  const int64_t heads = shape.num_kv_heads;
  const size_t plane_bytes = shape.PlaneBytes();
  const size_t value_bytes = KvElementsBytes(shape.kv_type(), shape.head_dim);
  const size_t scales = kPageSize * value_bytes;
  const int64_t together = FormatOf(shape.kv_type()).inputs;
  const int64_t num_values = (num_slots + together - 1) / together * together;
  std::memcpy(target, source, heads * plane_bytes);
  for (int64_t plane = heads; plane < 2 * heads; ++plane) {
    const std::byte* from = source + plane * plane_bytes;
    std::byte* to = target + plane * plane_bytes;
    std::memcpy(to, from, num_values * value_bytes);
    std::memcpy(to + scales, from + scales, plane_bytes - scales);
  }
}

void LayerAttention::PageNewTokens(ThreadPool& pool) {
  std::vector<Scratch::Page>& pages = scratch_->pages;
  pages.clear();
  for (size_t i = 0; i < num_sequences_; ++i) {
    const Sequence& sequence = sequences_[i];
    const int64_t end = sequence.first_position + sequence.row_end - sequence.row_begin;
    for (int64_t index = sequence.first_position / kPageSize; index * kPageSize < end; ++index) {
      const bool has_history = index < static_cast<int64_t>(sequence.pages.size());
      pages.push_back(
          {&sequence, index,
           has_history ? static_cast<const std::byte*>(sequence.pages[index]) : nullptr});
    }
  }

  const AttentionShape& shape = call_.shape;
  const size_t page_bytes = shape.PageBytes();
  std::byte* scratch = scratch_->bytes.Reserve(pages.size() * page_bytes);
  const KvPages target{scratch, static_cast<int64_t>(pages.size()), shape.num_kv_heads,
                       shape.head_dim, shape.kv_type()};
  const auto* keys = static_cast<const std::byte*>(tokens_.keys);
  const auto* values = static_cast<const std::byte*>(tokens_.values);

  pool.Run(static_cast<int>(pages.size()), [&](int task) {
    const Scratch::Page& page = pages[task];
    const Sequence& sequence = *page.sequence;
    const int64_t first = page.index * kPageSize;
    const int64_t new_end = sequence.first_position + sequence.row_end - sequence.row_begin;
    const int64_t begin = std::max(first, sequence.first_position);
    const int64_t end = std::min(first + kPageSize, new_end);
    if (page.history != nullptr) {
      CopyHistory(page.history, begin - first, scratch + task * page_bytes);
    }
    for (int64_t position = begin; position < end; ++position) {
      const int64_t row = sequence.row_begin + position - sequence.first_position;
      const int64_t slot_id = task * kPageSize + position - first;
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const size_t offset =
            static_cast<size_t>(row * shape.num_kv_heads + head) * target.RowBytes();
        target.WriteKey(slot_id, head, keys + offset);
        target.WriteValue(slot_id, head, values + offset);
      }
    }
  });

  size_t next = 0;
  for (size_t i = 0; i < num_sequences_; ++i) {
    Sequence& sequence = sequences_[i];
    sequence.pages.resize(sequence.first_position / kPageSize);
    for (; next < pages.size() && pages[next].sequence == &sequence; ++next) {
      sequence.pages.push_back(scratch + next * page_bytes);
    }
  }
}

void LayerAttention::CheckMerge() {
  if (state_ != State::kGathering && state_ != State::kComplete) {
    Fail("a merge was called before any segment");
  }
}

void LayerAttention::CheckAppend() {
  if (state_ == State::kGathering) Fail("an append was called before the pages were complete");
}

}  // namespace aiomlc
