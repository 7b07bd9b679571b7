"""Checksums of files, computed by the native library."""

from __future__ import annotations

__all__ = ("Checkpoint", "file_checksums")

import os
from collections.abc import Callable
from typing import Any, Final

SEGMENT_BYTES: Final = 1 << 30
_BYTES_PER_THREAD = 4 << 20

Checkpoint = Callable[[], object]  #: Called between segments; raises an exception to stop.


def file_checksums(descriptor: int, nbytes: int, checkpoint: Checkpoint) -> list[str]:
    """Return a checksum of 128 bits for each GiB of an open file, as hexadecimal digits.

    The native library must have been loaded.

    Raises:
        OSError: If the file cannot be read or is too short.
    """
    checksum = _native_checksum()
    threads = min(len(os.sched_getaffinity(0)), 1 + nbytes // _BYTES_PER_THREAD)
    sums = []
    for offset in range(0, nbytes, SEGMENT_BYTES):
        checkpoint()
        size = min(SEGMENT_BYTES, nbytes - offset)
        try:
            sums.append(str(checksum(descriptor, offset, size, threads)))
        except RuntimeError as error:
            raise OSError(str(error)) from error

    return sums


def _native_checksum() -> Any:  # noqa: ANN401 - an FFI function has no static signature.
    import tvm_ffi  # Takes 0.1 s, so it is only imported when a file is verified.

    function = tvm_ffi.get_global_func("aiomlc.checksum")
    function.release_gil = True
    return function
