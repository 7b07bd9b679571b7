/*!
 * \file engine/prefix_transfer.h
 * \brief Copies of prefixes between the KV caches of engines.
 */
#ifndef AIOMLC_ENGINE_PREFIX_TRANSFER_H_
#define AIOMLC_ENGINE_PREFIX_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/sequence_table.h"
#include "engine/step_context.h"
#include "prompt/prefix_key.h"

namespace aiomlc {

/*!
 * \brief Copies keys and values out of the prefix cache, and into it.
 *
 * A prefix is copied in pieces. Each import forks the entry of the preceding tokens and replaces it
 * by a longer one, so that between two pieces there is no state but the prefix cache, and a
 * transfer that ends early leaves an entry like any other. Used only between steps.
 */
class PrefixTransfer {
 public:
  /*! \brief The arguments are not owned and must outlive this object. */
  PrefixTransfer(StepContext* context, SequenceTable* sequences, IdSource* ids)
      : context_(*context), sequences_(*sequences), ids_(*ids) {}

  /*! \return The number of first tokens that are in the prefix cache. \throws EngineError
   * kBadRequest.
   */
  int64_t CountCached(const PrefixKey& key) const;

  /*!
   * \brief Copy the keys and values of tokens [begin, key.size()) of a cached prefix.
   * \param data See `SequenceState::Export`; its size must match.
   * \throws EngineError kBadRequest, or kPrefixNotCached if not all tokens are cached.
   */
  void Export(const PrefixKey& key, int64_t begin, std::span<std::byte> data);

  /*!
   * \brief Add a prefix to the cache: its first `begin` tokens are in it, the others are copied.
   *
   * Does nothing if all tokens are in the cache.
   *
   * \param key At most `max_tokens` tokens.
   * \param begin A multiple of the sharing granularity of the state.
   * \throws EngineError kBadRequest, kPrefixNotCached if the first tokens are not cached, or
   *     kEngineOverloaded if too little is available; the exceptions of the model.
   */
  void Import(const PrefixKey& key, int64_t begin, std::span<const std::byte> data,
              int64_t max_tokens);

 private:
  /*! \throws EngineError kBadRequest. */
  void Validate(const PrefixKey& key, int64_t begin, size_t data_size) const;
  /*! \return An entry with all tokens of `key`. \throws EngineError kPrefixNotCached. */
  PrefixMatch FindAll(const PrefixKey& key) const;

  StepContext& context_;
  SequenceTable& sequences_;
  IdSource& ids_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_PREFIX_TRANSFER_H_
