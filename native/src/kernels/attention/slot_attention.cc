#include "kernels/attention/slot_attention.h"

#include <cstddef>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_pages.h"
#include "platform/kv_type.h"

namespace aiomlc {
namespace {

AttentionShape ShapeOf(const SlotMemory& memory, float scale) {
  return {memory.num_heads, memory.num_heads, memory.head_dim, FloatType::kF32, scale};
}

float* Slot(const SlotMemory& memory, int64_t slot) {
  return memory.data + slot * memory.pages_per_slot * memory.PageElements();
}

/*! \brief Write the keys and values of one head of rows. */
void WriteHead(const SlotMemory& memory, const SlotRows& rows, int64_t head, const float* keys,
               const float* values) {
  const KvPages pages{reinterpret_cast<std::byte*>(Slot(memory, rows.slot)), memory.pages_per_slot,
                      memory.num_heads, memory.head_dim, KvType::kF32};
  const int64_t first = rows.end - rows.num_rows;
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const int64_t offset = i * memory.RowSize() + head * memory.head_dim;
    pages.WriteKey(first + i, head, reinterpret_cast<const std::byte*>(keys + offset));
    pages.WriteValue(first + i, head, reinterpret_cast<const std::byte*>(values + offset));
  }
}

}  // namespace

int64_t SlotMemory::PageElements() const { return ShapeOf(*this, 1.0f).PageElements(); }

int64_t SlotMemory::Capacity() const { return pages_per_slot * kPageSize; }

void WriteSlots(ThreadPool& pool, const SlotMemory& memory, std::span<const SlotRows> rows,
                const float* keys, const float* values) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const SlotRows& each : rows) {
    offsets.push_back(offset);
    offset += each.num_rows * memory.RowSize();
  }
  const int64_t heads = memory.num_heads;
  pool.Run(static_cast<int>(static_cast<int64_t>(rows.size()) * heads), [&](int task) {
    const int64_t index = task / heads;
    WriteHead(memory, rows[index], task % heads, keys + offsets[index], values + offsets[index]);
  });
}

void AttendSlots(ThreadPool& pool, const SlotMemory& memory, std::span<const SlotRows> rows,
                 float scale, bool see_all, const float* queries, float* output) {
  std::vector<const void*> pages;
  pages.reserve(rows.size() * memory.pages_per_slot);  // The addresses below must not change.
  std::vector<AttentionRows> sequences;
  int64_t row = 0;
  for (const SlotRows& each : rows) {
    const void* const* first = pages.data() + pages.size();
    for (int64_t page = 0; page * kPageSize < each.end; ++page) {
      pages.push_back(Slot(memory, each.slot) + page * memory.PageElements());
    }
    sequences.push_back({row, each.num_rows, each.end - each.num_rows, first, see_all});
    row += each.num_rows;
  }
  Attend(pool, ShapeOf(memory, scale), sequences, queries, output);
}

}  // namespace aiomlc
