"""The native libraries in this process, and their functions by name."""

from __future__ import annotations

__all__ = (
    "ffi_shape",
    "load_native",
    "native_function",
    "open_library",
    "register_global",
)

import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiomlc import errors

_CROSS_THE_FFI = (
    errors.BadRequestError,
    errors.EngineError,
    errors.GrammarError,
    errors.PromptTooLongError,
    errors.EngineClosedError,
    errors.EngineDeadError,
    errors.EngineOverloadedError,
    errors.ModelLoadError,
    MemoryError,
)


def _library_path() -> Path:
    """The shared library: `$AIOMLC_LIBRARY`, beside the package or where the installer put it."""
    if chosen := os.environ.get("AIOMLC_LIBRARY"):
        return Path(chosen)

    beside = Path(__file__).parents[2] / "lib" / "libaiomlc.so"
    if beside.is_file():
        return beside
    for file in importlib.metadata.files("aiomlc") or ():
        if file.name.startswith("libaiomlc."):
            return Path(str(file.locate()))
    raise errors.ModelLoadError("the native library is missing: reinstall aiomlc", path=beside)


def _tvm_library(name: str) -> Path:
    spec = importlib.util.find_spec("tvm")  # Finds the package without importing it.
    if spec is None or not spec.submodule_search_locations:
        raise errors.ModelLoadError("apache-tvm is not installed")
    return Path(spec.submodule_search_locations[0]) / "lib" / name


def _import_tvm_ffi() -> None:
    """Import `tvm_ffi` alone: it would import torch along where that is installed, for a second
    and more. A program that uses the two together imports torch itself, before or after."""
    if "torch" in sys.modules:
        return

    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("tvm_ffi")
    finally:
        del sys.modules["torch"]


@functools.cache
def _register_errors() -> None:
    """Let our errors cross the FFI as themselves."""
    _import_tvm_ffi()
    import tvm_ffi

    for error in _CROSS_THE_FFI:
        tvm_ffi.register_error(error.__name__, error)


@functools.cache
def load_native() -> None:
    """Load TVM's runtime and our library into the process, without importing `tvm`.

    Raises:
        ModelLoadError: one of the libraries is missing or does not load.
    """
    _register_errors()
    try:
        for name in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
            ctypes.CDLL(str(_tvm_library(name)), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(_library_path()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise errors.ModelLoadError(f"a native library does not load: {error}") from error


@contextmanager
def open_library(library: Path) -> Iterator[Any]:
    """The module of a compiled library, for a body that makes something of it.

    Raises:
        ModelLoadError: the library is none, or the body found that it lacks a function.
        MemoryError: the body asked for what there is not.
    """
    try:
        yield native_function("ffi.Module.load_from_file.relax.VMExecutable")(str(library))
    except (errors.AiomlcError, MemoryError):
        raise
    except Exception as error:
        raise errors.ModelLoadError(
            f"the compiled library {library} cannot be opened: {error}", path=library
        ) from error


def register_global(name: str, function: Callable[..., object]) -> None:
    """Let every language in the process find a function by its name.

    What it returns is converted: a dict of functions becomes a map of FFI functions.
    """
    _register_errors()
    import tvm_ffi

    tvm_ffi.register_global_func(name, function)


def native_function(name: str) -> Any:  # noqa: ANN401 - an FFI function has no static signature.
    """A function of the native libraries, by its global name. It runs without the GIL."""
    import tvm_ffi

    load_native()
    function = tvm_ffi.get_global_func(name)
    # A variable of the environment can turn it off for all; then nothing would run beside the core.
    function.release_gil = True
    return function


def ffi_shape(values: Iterable[int]) -> object:
    """Whole numbers as the FFI has them."""
    import tvm_ffi

    return tvm_ffi.Shape(tuple(values))
