/*!
 * \file kernels/attention/kv_pages.h
 * \brief Move keys and values in and out of the pages of a KV cache.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_
#define AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "platform/kv_type.h"

namespace aiomlc {

/*!
 * \brief Pages of one layer, each as large as [key or value, kv head, 16, head_dim].
 *
 * The keys of a head lie with their slots side by side, [head_dim, 16], because attention
 * multiplies an element of 16 keys at once; its values lie one after the other, [16, head_dim].
 * After these 16 rows come their scales, if the type has any. A slot id is page * 16 + slot. Ids
 * and lengths must be in range; nothing here checks them.
 */
struct KvPages {
  std::byte* data = nullptr;
  int64_t num_pages = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kF16;

  /*! \return Bytes of one head of one position, in a dense row. */
  size_t RowBytes() const { return KvRowBytes(type, head_dim); }

  /*! \return The same without its scale. */
  size_t ElementsBytes() const { return static_cast<size_t>(head_dim) * KvElementBytes(type); }

  /*! \return Bytes of one page. */
  size_t PageBytes() const;

  /*! \return The keys or values of one head in the page of a slot. */
  std::byte* Plane(int64_t slot_id, bool is_value, int64_t head) const;

  /*! \brief Write one head of one position. */
  void WriteKey(int64_t slot_id, int64_t head, const std::byte* row) const;
  void WriteValue(int64_t slot_id, int64_t head, const std::byte* row) const;

  /*! \brief Read one head of one position. */
  void ReadKey(int64_t slot_id, int64_t head, std::byte* row) const;
  void ReadValue(int64_t slot_id, int64_t head, std::byte* row) const;
};

/*! \brief Write tokens to their slots; a negative slot id skips the token. */
void AppendToPages(const KvPages& pages, const void* keys, const void* values,
                   const int32_t* slot_ids, int64_t num_tokens);

/*! \brief Read tokens from their slots: the inverse of `AppendToPages`. */
void ReadFromPages(const KvPages& pages, const int32_t* slot_ids, int64_t num_tokens, void* keys,
                   void* values);

/*! \brief Copy the first `num_slots` slots of a page to another one. */
void CopyPage(const KvPages& pages, int64_t source_page, int64_t target_page, int64_t num_slots);

/*! \brief Copy slots, one after the other. */
void CopySlots(const KvPages& pages, const int32_t* source_ids, const int32_t* target_ids,
               int64_t count);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_
