/*!
 * \file ffi/cpu/slots.cc
 * \brief The kernels of models whose keys and values are in slots, as FFI globals. Outputs come
 * last.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ffi/tensor_arguments.h"
#include "kernels/attention/slot_attention.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \brief One layer of the memory [layers, slots, pages, elements of a page]. */
SlotMemory MemoryOf(const TensorArguments& args, const TensorView& memory, int64_t layer,
                    int64_t num_heads, int64_t row_size) {
  args.RequireShape(memory, "memory", {kAny, kAny, kAny, kAny});
  args.Require(num_heads > 0 && row_size % num_heads == 0,
               "rows must have a multiple of the heads' elements, got ", row_size, " and ",
               num_heads, " heads");
  args.Require(layer >= 0 && layer < memory.size(0), "layer must be in [0, ", memory.size(0),
               "), got ", layer);
  SlotMemory slots{args.Data<float>(memory, "memory"), memory.size(2), num_heads,
                   row_size / num_heads};
  args.RequireShape(memory, "memory", {kAny, kAny, kAny, slots.PageElements()});
  slots.data += layer * memory.size(1) * memory.size(2) * memory.size(3);
  return slots;
}

/*!
 * \brief The rows of each slot, which must be all rows.
 * \param see_all Whether rows see all positions, of which there may be fewer than rows.
 */
std::vector<SlotRows> RowsOf(const TensorArguments& args, const SlotMemory& memory,
                             int64_t num_slots, const TensorView& lengths, const TensorView& ends,
                             const TensorView& slots, int64_t num_rows, bool see_all) {
  args.RequireShape(lengths, "lengths", {kAny});
  args.RequireShape(ends, "ends", {lengths.size(0)});
  args.RequireShape(slots, "slots", {lengths.size(0)});
  const int32_t* length = args.Data<int32_t>(lengths, "lengths");
  const int32_t* end = args.Data<int32_t>(ends, "ends");
  const int32_t* slot = args.Data<int32_t>(slots, "slots");
  std::vector<SlotRows> result;
  int64_t rows = 0;
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    args.Require(length[i] > 0 && end[i] > 0 && end[i] <= memory.Capacity(),
                 "lengths must be at least 1, and ends in [1, ", memory.Capacity(), "], got ",
                 length[i], " and ", end[i]);
    args.Require(see_all || length[i] <= end[i], "lengths must be at most ends, got ", length[i],
                 " and ", end[i]);
    args.Require(slot[i] >= 0 && slot[i] < num_slots, "slots must be in [0, ", num_slots, "), got ",
                 slot[i]);
    result.push_back({slot[i], length[i], end[i]});
    rows += length[i];
  }
  args.Require(rows == num_rows, "lengths must sum to ", num_rows, ", got ", rows);
  return result;
}

/*! \brief Write rows to their slots, and copy `slots` to `out`: what reads them depends on it. */
void CallWriteSlots(TensorView keys, TensorView values, TensorView lengths, TensorView ends,
                    TensorView slots, TensorView memory, int64_t layer, int64_t num_heads,
                    TensorView out) {
  const TensorArguments args("aiomlc.cpu.write_slots");
  args.RequireShape(keys, "keys", {kAny, kAny});
  args.RequireShape(values, "values", {keys.size(0), keys.size(1)});
  const SlotMemory target = MemoryOf(args, memory, layer, num_heads, keys.size(1));
  const std::vector<SlotRows> rows =
      RowsOf(args, target, memory.size(1), lengths, ends, slots, keys.size(0), false);
  std::vector<bool> is_written(static_cast<size_t>(memory.size(1)));
  for (const SlotRows& each : rows) {
    args.Require(!is_written[each.slot], "slots must be different, got ", each.slot, " twice");
    is_written[each.slot] = true;
  }
  args.RequireShape(out, "out", {slots.size(0)});
  WriteSlots(ThreadPool::Current(), target, rows, args.Data<float>(keys, "keys"),
             args.Data<float>(values, "values"));
  std::copy_n(args.Data<int32_t>(slots, "slots"), slots.size(0), args.Data<int32_t>(out, "out"));
}

/*! \param see_all Whether rows see all positions before their ends. */
void CallAttendSlots(TensorView queries, TensorView lengths, TensorView ends, TensorView slots,
                     TensorView memory, int64_t layer, int64_t num_heads, double scale,
                     int64_t see_all, TensorView out) {
  const TensorArguments args("aiomlc.cpu.attend_slots");
  args.RequireShape(queries, "queries", {kAny, kAny});
  args.RequireShape(out, "out", {queries.size(0), queries.size(1)});
  const SlotMemory source = MemoryOf(args, memory, layer, num_heads, queries.size(1));
  const std::vector<SlotRows> rows =
      RowsOf(args, source, memory.size(1), lengths, ends, slots, queries.size(0), see_all != 0);
  AttendSlots(ThreadPool::Current(), source, rows, static_cast<float>(scale), see_all != 0,
              args.Data<float>(queries, "queries"), args.Data<float>(out, "out"));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def("aiomlc.cpu.write_slots", CallWriteSlots)
      .def("aiomlc.cpu.attend_slots", CallAttendSlots);
}

}  // namespace
}  // namespace aiomlc
