"""The product of a few vectors and a matrix of 4 bits, as a GPU kernel that is bound by memory.

TVM's own rules would first write the matrix as float32, which takes 14 times its bytes twice. Here
a warp has some rows of the matrix. Each of its lanes dequantizes groups of 32 columns in registers
and multiplies them with the vectors; at the end, the sums of all lanes are added. A product does
not depend on the others of its pass.
"""

# No `from __future__ import annotations`: TVMScript reads the annotations.

__all__ = ("fused_product", "gemv")

from typing import Any, Final

from tvm import tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.script import tirx as T  # noqa: N812 - TVMScript's name for it.

from aiomlc.compiler.backends.tvm.layers import dequantized_product
from aiomlc.models.parameters.packed_layout import GROUP_SIZE, ROW_GROUP_BYTES

_SEQUENCES: Final = "b"  # Their number, in the exported functions (`compiler/build.py`).
_VECTORS: Final = 4  # Of a block of threads; more vectors take more blocks.
_LANES: Final = 32
_WARPS: Final = 4  # Of a block.
_PARTS: Final = 2  # Of a group, which are dequantized one after the other.
_PART: Final = GROUP_SIZE // _PARTS
_SCALE_BYTE: Final = GROUP_SIZE // 2
_ZERO_POINT: Final = 7
# Rows of a warp, by the rows of the matrix. Few rows must be spread over all multiprocessors; of
# many rows a warp takes some at once, which share its loads of the vectors.
_ROWS_OF_WARP: Final = ((8192, 4), (4096, 2), (0, 1))


def fused_product(x: Any, weight: Any, columns: int) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the product of vectors and a matrix of 4 bits, by the kernel if they are few.

    Prompts have many vectors `[n, columns]`, for which the matrix is dequantized once. Of
    `[b, columns]`, there is one for each sequence.
    """
    count, rows = x.shape[0], weight.shape[0]
    if getattr(count, "name", None) != _SEQUENCES or columns % GROUP_SIZE:
        return dequantized_product(x, weight, columns)

    y = nn.Tensor.placeholder((count, rows), "float32")
    product: nn.Tensor = op.tensor_ir_op(
        gemv(rows, columns), "gemv", [x.astype("float32"), weight], y
    )
    return product


def gemv(rows: int, columns: int) -> Any:  # noqa: ANN401, C901 - the loops of one kernel.
    """Return a kernel with the arguments `x`, `packed` and `y`.

    These are `float32[n, columns]`, `uint8[rows, groups, ROW_GROUP_BYTES]` and
    `float32[n, rows]`.
    """
    each = next(count for least, count in _ROWS_OF_WARP if rows >= least)
    groups = columns // GROUP_SIZE
    blocks, steps = -(-rows // (_WARPS * each)), -(-groups // _LANES)
    pairs = each * _VECTORS  # Of a row and a vector: the sums of a warp.

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def kernel(  # noqa: C901
        x_handle: T.handle, w_handle: T.handle, y_handle: T.handle
    ) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        n = T.int64()
        x = T.match_buffer(x_handle, (n, columns), "float32")
        packed = T.match_buffer(w_handle, (rows, groups, ROW_GROUP_BYTES), "uint8")
        y = T.match_buffer(y_handle, (n, rows), "float32")
        for tile in T.thread_binding(T.ceildiv(n, _VECTORS), thread="blockIdx.y"):
            for block in T.thread_binding(blocks, thread="blockIdx.x"):
                for warp in T.thread_binding(_WARPS, thread="threadIdx.y"):
                    for lane in T.thread_binding(_LANES, thread="threadIdx.x"):
                        with T.sblock("gemv"):
                            sums = T.sblock_alloc_buffer((pairs,), "float32", scope="local")
                            w = T.sblock_alloc_buffer((each * _PART,), "float32", scope="local")
                            v = T.sblock_alloc_buffer((_PART,), "float32", scope="local")
                            scale = T.sblock_alloc_buffer((1,), "float32", scope="local")
                            lanes = T.sblock_alloc_buffer(
                                (_WARPS, pairs, _LANES), "float32", scope="shared"
                            )
                            row = T.meta_var((block * _WARPS + warp) * each)
                            for s in T.unroll(pairs):
                                sums[s] = T.float32(0)
                            for step in T.serial(steps):
                                group = T.meta_var(step * _LANES + lane)
                                if group < groups:
                                    for part in T.unroll(_PARTS):
                                        for r in T.unroll(each):
                                            # Past the last row it is read again, and not written.
                                            read = T.meta_var(T.min(row + r, rows - 1))
                                            scale[0] = _scale(packed, read, group)
                                            for k in T.unroll(_PART):
                                                column = T.meta_var(part * _PART + k)
                                                code = T.meta_var(
                                                    _code(packed, read, group, column)
                                                )
                                                w[r * _PART + k] = code * scale[0]
                                        for i in T.unroll(_VECTORS):
                                            vector = T.meta_var(tile * _VECTORS + i)
                                            if vector < n:
                                                first = T.meta_var(
                                                    group * GROUP_SIZE + part * _PART
                                                )
                                                for q in T.unroll(_PART // 4):
                                                    for e in T.vectorized(4):
                                                        v[q * 4 + e] = x[vector, first + q * 4 + e]
                                                for k, r in T.grid(_PART, each):
                                                    sums[r * _VECTORS + i] += (
                                                        v[k] * w[r * _PART + k]
                                                    )
                            # In other places of each pair, so that no two are in one bank.
                            for s in T.unroll(pairs):
                                lanes[warp, s, (lane + s) % _LANES] = sums[s]
                            T.tvm_storage_sync("shared")
                            if lane < pairs:
                                sums[0] = T.float32(0)
                                for k in T.serial(_LANES):
                                    sums[0] += lanes[warp, lane, (k + lane) % _LANES]
                                vector = T.meta_var(tile * _VECTORS + lane % _VECTORS)
                                written = T.meta_var(row + lane // _VECTORS)
                                if vector < n and written < rows:
                                    y[vector, written] = sums[0]

    result: tirx.PrimFunc = kernel
    return result


def _scale(packed: Any, row: Any, group: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the scale of a group, a float16 after its codes."""
    low, high = (T.Cast("uint16", packed[row, group, _SCALE_BYTE + i]) for i in range(2))
    bits = T.bitwise_or(low, T.shift_left(high, T.uint16(8)))
    return T.Cast("float32", T.reinterpret("float16", bits))


def _code(packed: Any, row: Any, group: Any, column: Any) -> Any:  # noqa: ANN401 - the same.
    """Return the number of a weight, which its scale multiplies."""
    byte = T.Cast("int32", packed[row, group, column // 2])
    code = T.bitwise_and(T.shift_right(byte, column % 2 * 4), 15)
    return T.Cast("float32", code - _ZERO_POINT)
