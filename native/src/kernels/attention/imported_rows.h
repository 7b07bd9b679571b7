/*!
 * \file kernels/attention/imported_rows.h
 * \brief Keys and values that a call of TVM's paged KV cache stores in place of computed ones.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_IMPORTED_ROWS_H_
#define AIOMLC_KERNELS_ATTENTION_IMPORTED_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace aiomlc {

/*!
 * \brief The keys and values of one layer, as the cache stores them: rotated, and quantized in an
 * int8 cache.
 *
 * While a scope is alive, the functions that the cache calls on this thread write these rows to
 * its pages, and compute no attention.
 */
struct ImportedRows {
  const std::byte* keys = nullptr;  //!< num_tokens * token_bytes bytes; `values` likewise
  const std::byte* values = nullptr;
  int64_t num_tokens = 0;
  size_t token_bytes = 0;  //!< Of the rows of all heads.

  /*! \return The rows of the current scope; null outside of any scope. */
  static const ImportedRows* Current() { return current_; }

  class Scope;

 private:
  static thread_local const ImportedRows* current_;
};

/*! \brief Makes rows the current ones of this thread during its lifetime. */
class ImportedRows::Scope {
 public:
  explicit Scope(const ImportedRows& rows) : rows_(rows) { current_ = &rows_; }
  ~Scope() { current_ = nullptr; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const ImportedRows rows_;
};

inline thread_local const ImportedRows* ImportedRows::current_ = nullptr;

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_IMPORTED_ROWS_H_
