"""The audio that callers pass: samples, the bytes of a file, or its path."""

from __future__ import annotations

__all__ = ("AudioInput", "load_audio", "load_reference", "recordings")

import base64
import binascii
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from aiomlc.errors import BadRequestError
from aiomlc.runtime.audio.decode import SAMPLE_RATE, decode_audio
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.audio.recording import Recording
from aiomlc.runtime.audio.reference import AudioReference
from aiomlc.runtime.concurrency.worker_thread import LoopLimiter, run_in_worker
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.regular_files import open_regular_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Samples (mono, 16 kHz, float32 or float64), the bytes of a file, or its path.
AudioInput: TypeAlias = "NDArray[np.floating] | bytes | str | os.PathLike[str]"
#: Recordings whose samples are in memory, between `load_audio` and their features; each takes
#: up to 350 kB a second.
recordings: Final = LoopLimiter(2)


async def load_audio(
    source: AudioInput, limits: AudioLimits, param: str = "audio"
) -> NDArray[np.float32]:
    """Return samples at 16 kHz, float32 `[samples]`; a file is decoded in a worker thread.

    Raises:
        BadRequestError: If the audio is of another type, missing, damaged, empty, or exceeds a
            limit; `param` names the field.
        MissingPackageError: If a package of the extra `audio` is not installed.
    """
    return await run_in_worker(lambda is_cancelled: _load(source, limits, param, is_cancelled))


async def load_reference(reference: AudioReference, limits: AudioLimits, param: str) -> Recording:
    """Return the audio of a chat, which is decoded in a worker thread.

    Raises:
        BadRequestError: If the audio is damaged, empty or no base64, or exceeds a limit; `param`
            names the part.
        MissingPackageError: If a package of the extra `audio` is not installed.
    """

    def load(is_cancelled: Callable[[], bool]) -> Recording:
        return Recording(decode_audio(_file(reference, param), limits, param, is_cancelled))

    async with recordings.get():
        return await run_in_worker(load)


def _file(reference: AudioReference, param: str) -> bytes:
    if isinstance(reference.source, bytes):
        return reference.source

    try:
        return base64.b64decode(reference.source, validate=True)
    except (binascii.Error, ValueError):
        problem = f"{param}: data must be base64, got {safe_repr(reference.source)}"
        raise BadRequestError(problem, param=param) from None


def _load(
    source: object, limits: AudioLimits, param: str, is_cancelled: Callable[[], bool]
) -> NDArray[np.float32]:
    match source:
        case np.ndarray():
            return _checked(source, limits, param)
        case bytes():
            return decode_audio(source, limits, param, is_cancelled)
        case str() | os.PathLike():
            return decode_audio(_read(Path(source), limits, param), limits, param, is_cancelled)
        case _:
            raise BadRequestError(
                f"{param}: must be samples (a float array of NumPy), the bytes of a file, or its "
                f"path, got {type(source).__name__}",
                param=param,
            )


def _checked(samples: NDArray[np.floating], limits: AudioLimits, param: str) -> NDArray[np.float32]:
    if samples.ndim != 1 or samples.dtype.name not in ("float32", "float64") or not samples.size:
        raise BadRequestError(
            f"{param}: samples must be float32 or float64 [samples], between -1 and 1 at "
            f"{SAMPLE_RATE} Hz, got {samples.dtype} {list(samples.shape)}",
            param=param,
        )

    if len(samples) > limits.max_seconds * SAMPLE_RATE:
        raise BadRequestError(
            f"{param}: must have at most {limits.max_seconds:g} s, got "
            f"{len(samples) / SAMPLE_RATE:g}: pass a part of it, or raise max_audio_seconds",
            param=param,
        )

    with np.errstate(over="ignore"):
        copy = samples.astype(np.float32)  # The caller cannot change it.
    if not np.isfinite(copy).all():
        raise BadRequestError(f"{param}: samples must be finite numbers of float32", param=param)

    return copy


def _read(path: Path, limits: AudioLimits, param: str) -> bytes:
    try:
        with open_regular_file(path) as file:
            # One byte more than allowed, which the decoder refuses.
            return file.read(limits.max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadRequestError(f"{param}: cannot read {path}: {reason}", param=param) from None
