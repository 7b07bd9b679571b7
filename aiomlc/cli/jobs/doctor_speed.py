"""The speed of the memory and the processor, and the share of it that the kernels reach."""

from __future__ import annotations

__all__ = ("Speed", "measure_speed")

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.runtime.native.library import load_native, native_function

_INPUTS = 2048
_MANY_OUTPUTS = 65536  # 75 MB in 4 bits: more than a thread's share of the caches.
_FEW_OUTPUTS = 512  # 0.6 MB: stays in the cache of a core.
_PROMPT_ROWS = 128
_BYTES = 0x11  # Its scales are finite, and not zero: pages of zeros may be shared.
_SECONDS = 0.6

_Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates of all threads together."""

    threads: int
    memory_gb_s: float  #: The fastest reading that was seen, the limit of decoding.
    decode_gb_s: float  #: Reading of 4-bit weights by the kernel that decodes one stream.
    #: Multiplications and additions of int8 in the cache, the limit of reading prompts.
    int8_gop_s: float
    prefill_gop_s: float  #: The same with 4-bit weights.


def measure_speed(threads: int) -> Speed:
    """Measure for about three seconds.

    A limit is the best of what was measured, so that no kernel is above it. The matrices that are
    read from memory may be in a large cache, so that this is not the speed of the memory alone.

    Args:
        threads: The number of threads, each of which reads memory of its own.
    """
    load_native()
    matrices = [_Matrix(_MANY_OUTPUTS, 1) for _ in range(threads)]
    nbytes = sum(matrix.packed.nbytes for matrix in matrices)
    reads = [partial(np.bitwise_or.reduce, matrix.packed.view(np.uint64)) for matrix in matrices]
    decode = nbytes / _fastest([matrix.multiply for matrix in matrices]) / 1e9
    prefill = _operations(threads, "q4")
    return Speed(
        threads=threads,
        memory_gb_s=max(decode, nbytes / _fastest(reads) / 1e9),
        decode_gb_s=decode,
        int8_gop_s=max(prefill, _operations(threads, "i8channel")),
        prefill_gop_s=prefill,
    )


def _operations(threads: int, matrix_format: str) -> float:
    """Return how many operations a kernel does in a nanosecond, with a matrix in the cache."""
    matrices = [_Matrix(_FEW_OUTPUTS, _PROMPT_ROWS, matrix_format) for _ in range(threads)]
    operations = 2.0 * threads * _FEW_OUTPUTS * _INPUTS * _PROMPT_ROWS
    return operations / _fastest([matrix.multiply for matrix in matrices]) / 1e9


@final
class _Matrix:
    """A matrix of quantized weights, and the tensors of a call of its kernel."""

    def __init__(self, outputs: int, rows: int, matrix_format: str = "q4") -> None:
        kind = MatrixFormat.parse(matrix_format)
        size = kind.packed_bytes(outputs, _INPUTS)
        self.packed: NDArray[np.uint8] = np.full(size, _BYTES, np.uint8)
        tensors = (np.ones((rows, _INPUTS), np.float32), self.packed)
        out = np.empty((rows, outputs), np.float32)
        self._arguments: tuple[Any, ...] = (
            *map(tvm_ffi.from_dlpack, tensors),
            tvm_ffi.Shape((kind.code, outputs)),
            tvm_ffi.from_dlpack(out),
        )
        self._linear = native_function("aiomlc.cpu.linear")

    def multiply(self) -> None:
        """Call the kernel."""
        self._linear(*self._arguments)


def _fastest(works: Sequence[_Work]) -> float:
    """Return the seconds of the fastest round, in which each thread does one work."""
    fastest = float("inf")
    with ThreadPoolExecutor(len(works)) as pool:
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end or fastest == float("inf"):
            start = time.perf_counter()
            for future in [pool.submit(work) for work in works]:
                future.result()

            fastest = min(fastest, time.perf_counter() - start)

    return fastest
