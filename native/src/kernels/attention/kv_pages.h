/*!
 * \file kernels/attention/kv_pages.h
 * \brief The layout of the pages of a KV cache, and copies to and from them.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_
#define AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "platform/kv_type.h"

namespace aiomlc {

/*!
 * \brief The pages of one layer. TVM's shape of a page is [2, num_kv_heads, 16, head_dim].
 *
 * A page consists of planes: the keys of each head, then the values of each head. The keys of a
 * head are stored transposed, as [head_dim, 16], because attention multiplies one element of 16
 * keys at a time; its values are stored as [16, head_dim]. With KvType::kBF16 and kI4, attention
 * multiplies pairs: keys are [head_dim / 2, 16, 2], and values [8, head_dim, 2]. A pair of kI4 is a
 * byte, whose low bits are the first element. If the type has scales, the 16 scales follow in the
 * same plane. A slot id is page * 16 + slot. Ids and lengths are not validated.
 */
struct KvPages {
  std::byte* data = nullptr;
  int64_t num_pages = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kF16;
  /*! \brief Bytes from a page to the next, if they are more than those of the planes; else 0. */
  size_t page_stride = 0;

  /*! \return The bytes of one head of one position, including its scale. */
  size_t RowBytes() const { return KvRowBytes(type, head_dim); }

  /*! \return The bytes of one head of one position, without its scale. */
  size_t ElementsBytes() const { return KvElementsBytes(type, head_dim); }

  /*! \return The bytes from one page to the next. */
  size_t PageBytes() const;

  /*! \return The keys, or the values, of one head in the page of a slot. */
  std::byte* Plane(int64_t slot_id, bool is_value, int64_t head) const;

  /*! \brief Write one head of one position. \param row `RowBytes` bytes. */
  void WriteKey(int64_t slot_id, int64_t head, const std::byte* row) const;
  void WriteValue(int64_t slot_id, int64_t head, const std::byte* row) const;

  /*! \brief Read one head of one position. \param row `RowBytes` bytes. */
  void ReadKey(int64_t slot_id, int64_t head, std::byte* row) const;
  void ReadValue(int64_t slot_id, int64_t head, std::byte* row) const;
};

/*!
 * \brief Write tokens to their slots; a negative slot id skips the token.
 * \param keys Rows of `RowBytes` bytes, [num_tokens, num_kv_heads]; `values` likewise.
 */
void AppendToPages(const KvPages& pages, const void* keys, const void* values,
                   const int32_t* slot_ids, int64_t num_tokens);

/*! \brief Read tokens from their slots: the inverse of `AppendToPages`. */
void ReadFromPages(const KvPages& pages, const int32_t* slot_ids, int64_t num_tokens, void* keys,
                   void* values);

/*! \brief Copy the first `num_slots` slots of a page to another page, whose later slots are free.
 */
void CopyPage(const KvPages& pages, int64_t source_page, int64_t target_page, int64_t num_slots);

/*! \brief Copy all bytes of a page to another page, whatever heads they hold. */
void CopyWholePage(const KvPages& pages, int64_t source_page, int64_t target_page);

/*! \brief Copy slots one by one, in order. */
void CopySlots(const KvPages& pages, const int32_t* source_ids, const int32_t* target_ids,
               int64_t count);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_KV_PAGES_H_
