"""Calls of the native kernels with NumPy arrays."""

from __future__ import annotations

__all__ = ("Array", "call", "empty", "random")

from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import DTypeLike, NDArray

from aiomlc.runtime.native.library import load_native

load_native()

Array = NDArray[Any]


def call(name: str, *arguments: object) -> None:
    """Call a kernel, whose last arguments are its outputs."""
    function = tvm_ffi.get_global_func(f"aiomlc.cpu.{name}")
    assert function is not None
    function(*(tvm_ffi.from_dlpack(a) if isinstance(a, np.ndarray) else a for a in arguments))


def random(*shape: int, seed: int = 0) -> Array:
    """Return normally distributed float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def empty(*shape: int, dtype: DTypeLike = np.float32) -> Array:
    """Return NaNs, which a kernel must overwrite."""
    return np.full(shape, np.nan, dtype)
