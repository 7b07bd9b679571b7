/*!
 * \file aiomlc/kv_pages.h
 * \brief Move keys and values in and out of the pages of a KV cache.
 */
#ifndef AIOMLC_KV_PAGES_H_
#define AIOMLC_KV_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace aiomlc {

/*!
 * \brief The pages of one layer: [num_pages, key or value, kv head, 16 slots, head_dim].
 *
 * A slot id is page * 16 + slot. Ids and lengths must be in range; nothing here checks them.
 */
struct KvPages {
  std::byte* data = nullptr;
  int64_t num_pages = 0;
  int64_t num_kv_heads = 0;
  size_t row_bytes = 0;  //!< Of one head of one position.

  /*! \return The key (or value) of one head in one slot. */
  std::byte* Row(int64_t slot_id, bool is_value, int64_t head) const;
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

#endif  // AIOMLC_KV_PAGES_H_
