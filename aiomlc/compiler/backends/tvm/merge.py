"""The merge of two attention states without the race of TVM's.

In TVM's kernel, the items of a work group that share a row read its log-sum-exp, and then each
writes the merged one. Only where they run in lockstep, as the lanes of a warp, have all of them
read it before the first of them writes.
"""

# No `from __future__ import annotations`: TVMScript reads the annotations.

__all__ = ("replace_merge",)

from typing import Final

import tvm
from tvm import tirx
from tvm.script import tirx as T  # noqa: N812 - TVMScript's name for it.

_NAME: Final = "tir_attention_merge_state"
_ITEMS: Final = 32  # Of a work group; every device has as many.


def replace_merge(module: tvm.IRModule) -> tvm.IRModule:
    """Replace TVM's merge of attention states by one with a barrier."""
    for variable, function in list(module.functions.items()):
        if variable.name_hint.startswith(_NAME):
            merge = _merge(variable.name_hint, str(function.params[0].dtype))
            module.update_func(variable, merge)
    return module


def _merge(name: str, dtype: str) -> tirx.PrimFunc:
    """Return a kernel with a work group for each row and head."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def merge(v: T.handle, s: T.handle, v_other: T.handle, s_other: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "global_symbol": name})
        rows = T.int32()
        heads = T.int32()
        size = T.int32()
        values = T.match_buffer(v, (rows, heads, size), dtype)
        sums = T.match_buffer(s, (rows, heads), "float32")
        other_values = T.match_buffer(v_other, (rows, heads, size), dtype)
        other_sums = T.match_buffer(s_other, (rows, heads), "float32")
        for row in T.thread_binding(rows, thread="blockIdx.x"):
            for head in T.thread_binding(heads, thread="blockIdx.y"):
                for item in T.thread_binding(_ITEMS, thread="threadIdx.x"):
                    with T.sblock("merge"):
                        largest = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        weight = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        other = T.sblock_alloc_buffer((1,), "float32", scope="local")
                        largest[0] = T.max(sums[row, head], other_sums[row, head])
                        weight[0] = T.exp2(sums[row, head] - largest[0])
                        other[0] = T.exp2(other_sums[row, head] - largest[0])
                        T.tvm_storage_sync("shared")  # All have read the sum.
                        for i in T.serial(T.ceildiv(size, _ITEMS)):
                            if i * _ITEMS + item < size:
                                values[row, head, i * _ITEMS + item] = T.Cast(
                                    dtype,
                                    (
                                        T.Cast("float32", values[row, head, i * _ITEMS + item])
                                        * weight[0]
                                        + T.Cast(
                                            "float32", other_values[row, head, i * _ITEMS + item]
                                        )
                                        * other[0]
                                    )
                                    / (weight[0] + other[0]),
                                )
                        if item == 0:
                            sums[row, head] = T.log2(weight[0] + other[0]) + largest[0]

    kernel: tirx.PrimFunc = merge
    return kernel
