/*!
 * \file kernels/attention/pass_pieces.h
 * \brief The embedded pieces of a forward pass, as the kernels of its layers read them.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_PASS_PIECES_H_
#define AIOMLC_KERNELS_ATTENTION_PASS_PIECES_H_

#include <cstdint>
#include <span>

namespace aiomlc {

/*! \brief Rows of a pass that belong to one piece. */
struct PieceRows {
  int64_t begin = 0;
  int64_t count = 0;
  /*! \brief float32[count, parts, hidden]: what replaces embeddings, then what layers add. */
  const float* data = nullptr;

  int64_t end() const { return begin + count; }
};

/*!
 * \brief The pieces of a pass, and the positions of its rows.
 *
 * TVM's calls of kernels do not pass them, so they are set for the thread that makes the calls. A
 * pass without pieces has none.
 */
struct PassPieces {
  int64_t num_rows = 0;  //!< Of the pass.
  /*! \brief In ascending order, without overlap. */
  std::span<const PieceRows> pieces;
  int64_t num_parts = 1;  //!< See `PieceRows::data`.
  /*! \brief int32[3, num_rows], or null: the RoPE positions in time, height and width. */
  const int32_t* rope_positions = nullptr;
  /*! \brief The axis, 0 to 2, of the position that each frequency of RoPE multiplies. */
  std::span<const uint8_t> rope_axes;

  /*! \return The pieces of the current scope; null outside of any scope. */
  static const PassPieces* Current() { return OfThread(); }

  class Scope;

 private:
  static const PassPieces*& OfThread() {
    thread_local const PassPieces* current = nullptr;
    return current;
  }
};

/*! \brief Makes pieces the current ones of this thread during its lifetime. */
class PassPieces::Scope {
 public:
  /*! \param pieces Not owned; must outlive this object. */
  explicit Scope(const PassPieces& pieces) { OfThread() = &pieces; }
  ~Scope() { OfThread() = nullptr; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_PASS_PIECES_H_
