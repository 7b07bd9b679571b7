#include "kernels/linear/amx_support.h"

#if defined(AIOMLC_AMX)

#include "kernels/linear/channel/channel_amx.h"
#include "kernels/linear/grouped/grouped_amx.h"
#include "kernels/linear/tiers/linear_amx.h"
#include "kernels/linear/tiers/linear_amx_bf16.h"

namespace aiomlc {

namespace {

/*!
 * \brief The AMX tile registers of this thread: the `Tiles` of linear_amx.h and linear_amx_bf16.h.
 *
 * Inline assembly, because the intrinsics of GCC 12 do not declare the memory that they read, so
 * the compiler may drop or delay preceding stores.
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

  /*! \brief Add the int8 matrix product of registers `kA` and `kB` to the sums, as int32. */
  template <int kSums, int kA, int kB>
  void AddDots() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }

  /*! \brief Like `AddDots`, for unsigned bytes in `kA`. */
  template <int kSums, int kA, int kB>
  void AddBiasedDots() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }

  /*! \brief Add the bf16 matrix product of registers `kA` and `kB` to the sums, as float32. */
  template <int kSums, int kA, int kB>
  void AddPairs() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace

void (*const kQ4Amx)(const LinearBlock&) = Q4OnTiles<AmxTiles>;
void (*const kGroupedAmx)(const LinearBlock&) = GroupedOnTiles<AmxTiles>;
void (*const kChannelAmx)(const LinearBlock&) = ChannelOnTiles<AmxTiles>;
void (*const kProgressiveAmx)(const LinearBlock&) = ProgressiveOnTiles<AmxTiles>;
void (*const kBF16Amx)(const LinearBlock&) = BF16OnTiles<AmxTiles>;

}  // namespace aiomlc

#else

namespace aiomlc {

void (*const kQ4Amx)(const LinearBlock&) = nullptr;
void (*const kGroupedAmx)(const LinearBlock&) = nullptr;
void (*const kChannelAmx)(const LinearBlock&) = nullptr;
void (*const kProgressiveAmx)(const LinearBlock&) = nullptr;
void (*const kBF16Amx)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_AMX)
