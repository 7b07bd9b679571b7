/*!
 * \file kernels/attention/kv_pages.cc
 * \brief Copies between pages and dense tensors.
 *
 * See kv_pages.h for the layout.
 */
#include "kernels/attention/kv_pages.h"

#include <cstring>

#include "kernels/attention/attention.h"

namespace aiomlc {
namespace {

/*! \brief Copy `count` elements of `size` bytes between two arrays with strides in bytes. */
template <size_t kBytes>
void CopyStrided(const std::byte* source, size_t source_stride, std::byte* target,
                 size_t target_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    // A row that is sent to another engine may not be aligned.
    std::memcpy(target, source, kBytes);
    source += source_stride;
    target += target_stride;
  }
}

void CopyStrided(size_t size, const std::byte* source, size_t source_stride, std::byte* target,
                 size_t target_stride, int64_t count) {
  switch (size) {
    case 4:
      return CopyStrided<4>(source, source_stride, target, target_stride, count);
    case 2:
      return CopyStrided<2>(source, source_stride, target, target_stride, count);
    default:
      return CopyStrided<1>(source, source_stride, target, target_stride, count);
  }
}

/*! \return The adjacent elements of a key that are stored together. */
int64_t KeyPartElements(KvType type) { return FormatOf(type).inputs; }

/*! \return The slots whose values are stored together, element by element. */
int64_t ValuePartSlots(KvType type) { return FormatOf(type).inputs; }

size_t KeyPartBytes(const KvPages& pages) {
  return KvElementsBytes(pages.type, KeyPartElements(pages.type));
}

/*! \return The first part of a key; consecutive parts are kPageSize parts apart. */
std::byte* Key(const KvPages& pages, int64_t slot_id, int64_t head) {
  return pages.Plane(slot_id, false, head) + slot_id % kPageSize * KeyPartBytes(pages);
}

/*! \brief Copy a key from memory with `source_stride` bytes between parts. */
void CopyKey(const KvPages& pages, const std::byte* source, size_t source_stride, std::byte* target,
             size_t target_stride) {
  CopyStrided(KeyPartBytes(pages), source, source_stride, target, target_stride,
              pages.head_dim / KeyPartElements(pages.type));
}

/*! \brief A value: element i is the element `first + i * stride` from `data` on. */
template <typename Byte>
struct ValueElements {
  Byte* data;
  int64_t first = 0;
  int64_t stride = 1;
};

ValueElements<std::byte> Value(const KvPages& pages, int64_t slot_id, int64_t head) {
  const int64_t slots = ValuePartSlots(pages.type);
  const int64_t slot = slot_id % kPageSize;
  return {pages.Plane(slot_id, true, head) + slot / slots * slots * pages.ElementsBytes(),
          slot % slots, slots};
}

/*! \brief Copy elements of 4 bits; the other bits of their bytes stay. */
void CopyHalfBytes(ValueElements<const std::byte> source, ValueElements<std::byte> target,
                   int64_t count) {
  int64_t from = source.first, to = target.first;
  for (int64_t i = 0; i < count; ++i, from += source.stride, to += target.stride) {
    const std::byte element = source.data[from / 2] >> (from % 2 * 4) & std::byte{15};
    const int shift = static_cast<int>(to % 2 * 4);
    std::byte& changed = target.data[to / 2];
    changed = (changed & std::byte{0xf0} >> shift) | element << shift;
  }
}

void CopyValue(const KvPages& pages, ValueElements<const std::byte> source,
               ValueElements<std::byte> target) {
  const int bits = FormatOf(pages.type).bits;
  if (bits < 8) return CopyHalfBytes(source, target, pages.head_dim);
  const size_t bytes = bits / 8;
  const std::byte* from = source.data + source.first * bytes;
  std::byte* to = target.data + target.first * bytes;
  if (source.stride == 1 && target.stride == 1) {
    std::memmove(to, from, pages.ElementsBytes());
  } else {
    CopyStrided(bytes, from, source.stride * bytes, to, target.stride * bytes, pages.head_dim);
  }
}

std::byte* Scale(const KvPages& pages, int64_t slot_id, bool is_value, int64_t head) {
  return pages.Plane(slot_id, is_value, head) + kPageSize * pages.ElementsBytes() +
         slot_id % kPageSize * FormatOf(pages.type).scale_bytes;
}

/*! \brief Copy the scales of adjacent slots, if the type has any. */
void CopyScales(const KvPages& pages, const std::byte* source, std::byte* target,
                int64_t num_slots) {
  std::memmove(target, source, static_cast<size_t>(num_slots) * FormatOf(pages.type).scale_bytes);
}

}  // namespace

size_t KvPages::PageBytes() const {
  if (page_stride != 0) return page_stride;
  return 2 * static_cast<size_t>(num_kv_heads * kPageSize) * RowBytes();
}

std::byte* KvPages::Plane(int64_t slot_id, bool is_value, int64_t head) const {
  const int64_t plane = (is_value ? num_kv_heads : 0) + head;
  return data + static_cast<size_t>(slot_id / kPageSize) * PageBytes() +
         static_cast<size_t>(plane * kPageSize) * RowBytes();
}

void KvPages::WriteKey(int64_t slot_id, int64_t head, const std::byte* row) const {
  const size_t part = KeyPartBytes(*this);
  CopyKey(*this, row, part, Key(*this, slot_id, head), kPageSize * part);
  CopyScales(*this, row + ElementsBytes(), Scale(*this, slot_id, false, head), 1);
}

void KvPages::WriteValue(int64_t slot_id, int64_t head, const std::byte* row) const {
  CopyValue(*this, {row}, Value(*this, slot_id, head));
  CopyScales(*this, row + ElementsBytes(), Scale(*this, slot_id, true, head), 1);
}

void KvPages::ReadKey(int64_t slot_id, int64_t head, std::byte* row) const {
  const size_t part = KeyPartBytes(*this);
  CopyKey(*this, Key(*this, slot_id, head), kPageSize * part, row, part);
  CopyScales(*this, Scale(*this, slot_id, false, head), row + ElementsBytes(), 1);
}

void KvPages::ReadValue(int64_t slot_id, int64_t head, std::byte* row) const {
  const auto [data, first, stride] = Value(*this, slot_id, head);
  CopyValue(*this, {data, first, stride}, {row});
  CopyScales(*this, Scale(*this, slot_id, true, head), row + ElementsBytes(), 1);
}

void AppendToPages(const KvPages& pages, const void* keys, const void* values,
                   const int32_t* slot_ids, int64_t num_tokens) {
  const auto* key = static_cast<const std::byte*>(keys);
  const auto* value = static_cast<const std::byte*>(values);
  for (int64_t token = 0; token < num_tokens; ++token) {
    if (slot_ids[token] < 0) continue;
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
      const size_t offset =
          static_cast<size_t>(token * pages.num_kv_heads + head) * pages.RowBytes();
      pages.WriteKey(slot_ids[token], head, key + offset);
      pages.WriteValue(slot_ids[token], head, value + offset);
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
          static_cast<size_t>(token * pages.num_kv_heads + head) * pages.RowBytes();
      pages.ReadKey(slot_ids[token], head, key + offset);
      pages.ReadValue(slot_ids[token], head, value + offset);
    }
  }
}

void CopyPage(const KvPages& pages, int64_t source_page, int64_t target_page, int64_t num_slots) {
  const int64_t from = source_page * kPageSize;
  const int64_t to = target_page * kPageSize;
  const size_t part_bytes = KeyPartBytes(pages);
  const int64_t value_slots = ValuePartSlots(pages.type);
  const int64_t whole_parts = (num_slots + value_slots - 1) / value_slots * value_slots;
  for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
    const std::byte* source = pages.Plane(from, false, head);
    std::byte* target = pages.Plane(to, false, head);
    for (int64_t c = 0; c < pages.head_dim / KeyPartElements(pages.type); ++c) {
      std::memcpy(target + c * kPageSize * part_bytes, source + c * kPageSize * part_bytes,
                  static_cast<size_t>(num_slots) * part_bytes);
    }
    std::memcpy(pages.Plane(to, true, head), pages.Plane(from, true, head),
                static_cast<size_t>(whole_parts) * pages.ElementsBytes());
    for (const bool is_value : {false, true}) {
      CopyScales(pages, Scale(pages, from, is_value, head), Scale(pages, to, is_value, head),
                 num_slots);
    }
  }
}

void CopyWholePage(const KvPages& pages, int64_t source_page, int64_t target_page) {
  std::memcpy(pages.data + static_cast<size_t>(target_page) * pages.PageBytes(),
              pages.data + static_cast<size_t>(source_page) * pages.PageBytes(), pages.PageBytes());
}

void CopySlots(const KvPages& pages, const int32_t* source_ids, const int32_t* target_ids,
               int64_t count) {
  const size_t key_stride = kPageSize * KeyPartBytes(pages);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
      CopyKey(pages, Key(pages, source_ids[i], head), key_stride, Key(pages, target_ids[i], head),
              key_stride);
      const auto [data, first, stride] = Value(pages, source_ids[i], head);
      CopyValue(pages, {data, first, stride}, Value(pages, target_ids[i], head));
      for (const bool is_value : {false, true}) {
        CopyScales(pages, Scale(pages, source_ids[i], is_value, head),
                   Scale(pages, target_ids[i], is_value, head), 1);
      }
    }
  }
}

}  // namespace aiomlc
