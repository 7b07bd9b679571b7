/*!
 * \file kv_pages.cc
 * \brief Copies between pages and dense tensors.
 */
#include "aiomlc/kv_pages.h"

#include <cstring>

#include "aiomlc/attention.h"

namespace aiomlc {

std::byte* KvPages::Row(int64_t slot_id, bool is_value, int64_t head) const {
  const int64_t plane = (slot_id / kPageSize * 2 + (is_value ? 1 : 0)) * num_kv_heads + head;
  return data + static_cast<size_t>(plane * kPageSize + slot_id % kPageSize) * row_bytes;
}

void AppendToPages(const KvPages& pages, const void* keys, const void* values,
                   const int32_t* slot_ids, int64_t num_tokens) {
  const auto* key = static_cast<const std::byte*>(keys);
  const auto* value = static_cast<const std::byte*>(values);
  for (int64_t token = 0; token < num_tokens; ++token) {
    if (slot_ids[token] < 0) continue;
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
      const size_t offset =
          static_cast<size_t>(token * pages.num_kv_heads + head) * pages.row_bytes;
      std::memcpy(pages.Row(slot_ids[token], false, head), key + offset, pages.row_bytes);
      std::memcpy(pages.Row(slot_ids[token], true, head), value + offset, pages.row_bytes);
    }
  }
}

void ReadFromPages(const KvPages& pages, const int32_t* slot_ids, int64_t num_tokens, void* keys,
                   void* values) {
  auto* key = static_cast<std::byte*>(keys);
  auto* value = static_cast<std::byte*>(values);
  for (int64_t token = 0; token < num_tokens; ++token) {
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
      const size_t offset =
          static_cast<size_t>(token * pages.num_kv_heads + head) * pages.row_bytes;
      std::memcpy(key + offset, pages.Row(slot_ids[token], false, head), pages.row_bytes);
      std::memcpy(value + offset, pages.Row(slot_ids[token], true, head), pages.row_bytes);
    }
  }
}

void CopyPage(const KvPages& pages, int64_t source_page, int64_t target_page, int64_t num_slots) {
  for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
    for (const bool is_value : {false, true}) {
      std::memcpy(pages.Row(target_page * kPageSize, is_value, head),
                  pages.Row(source_page * kPageSize, is_value, head),
                  static_cast<size_t>(num_slots) * pages.row_bytes);
    }
  }
}

void CopySlots(const KvPages& pages, const int32_t* source_ids, const int32_t* target_ids,
               int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
      for (const bool is_value : {false, true}) {
        std::memmove(pages.Row(target_ids[i], is_value, head),
                     pages.Row(source_ids[i], is_value, head), pages.row_bytes);
      }
    }
  }
}

}  // namespace aiomlc
