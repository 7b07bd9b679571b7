#include "kernels/linear/amx_support.h"

#if defined(AIOMLC_AMX)

#include "kernels/linear/linear_amx.h"
#include "kernels/linear/linear_amx_bf16.h"

namespace aiomlc {

namespace {

/*!
 * \brief The tile registers of this thread.
 *
 * In assembly: the intrinsics of GCC 12 do not say what memory they read, so that the compiler may
 * drop or delay the stores before them.
 */
class AmxTiles {
 public:
  explicit AmxTiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }

  template <int kTile>
  void Load(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%0,%1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }

  template <int kTile>
  void Store(void* rows, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }

  /*! \brief Add the products of signed bytes: a row of `kA` by a column of `kB`, four at a time. */
  template <int kSums, int kA, int kB>
  void AddDots() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }

  /*! \brief Add the products of bf16: a row of `kA` by a column of `kB`, two at a time. */
  template <int kSums, int kA, int kB>
  void AddPairs() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace

void (*const kQ4Amx)(const LinearBlock&) = Q4OnTiles<AmxTiles>;
void (*const kBF16Amx)(const LinearBlock&) = BF16OnTiles<AmxTiles>;

}  // namespace aiomlc

#else

namespace aiomlc {

void (*const kQ4Amx)(const LinearBlock&) = nullptr;
void (*const kBF16Amx)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_AMX)
