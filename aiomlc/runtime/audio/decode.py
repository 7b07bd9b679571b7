"""Decoding of audio by libsndfile, and its resampling, within limits of memory and time."""

from __future__ import annotations

__all__ = ("FORMATS", "SAMPLE_RATE", "decode_audio")

import io
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aiomlc.errors import BadRequestError, MissingPackageError
from aiomlc.runtime.audio.limits import AudioLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE_RATE: Final = 16_000  #: Hz, of the samples that models read.
#: The accepted formats, as libsndfile names them. It knows more, which hardly anyone sends.
FORMATS: Final = ("WAV", "WAVEX", "FLAC", "OGG", "MP3", "AIFF")
# How their files begin; parsers of others never see the data.
_MARKS: Final = (b"RIFF", b"RIFX", b"FORM", b"fLaC", b"OggS", b"ID3")
_MPEG_SYNC: Final = 0xFFE0  # The first eleven bits of an MP3 file without tags.
_MAX_RATE: Final = 384_000
_MAX_CHANNELS: Final = 16
_BLOCK_SECONDS: Final = 1  # Between two looks at the limits.
_MAX_REASON: Final = 200  # Characters.


class _Packages(NamedTuple):
    soundfile: ModuleType
    soxr: ModuleType


@cache
def _packages() -> _Packages:
    command = "pip install 'aiomlc[audio]'"
    try:
        import soundfile
    except (ImportError, OSError):  # An OSError if the package has no libsndfile.
        raise MissingPackageError("soundfile", command) from None

    try:
        import soxr
    except ImportError:
        raise MissingPackageError("soxr", command) from None

    return _Packages(soundfile, soxr)


class _File(io.BytesIO):
    """A file in memory. Headers may lead anywhere, and libsndfile cannot receive exceptions."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, or to the end if there is no such position."""
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return super().seek(0, io.SEEK_END)


class _RefusedError(ValueError):
    """The audio exceeds a limit, or is of an unknown format."""


def decode_audio(
    data: bytes, limits: AudioLimits, param: str, is_cancelled: Callable[[], bool] = lambda: False
) -> NDArray[np.float32]:
    """Return the samples of a file: float32 `[samples]` at 16 kHz, the mean of its channels.

    Blocks.

    Args:
        data: A file in one of `FORMATS`.
        limits: The limits on seconds and bytes.
        param: The field of the request, for errors.
        is_cancelled: Whether nothing waits for the samples any more.

    Raises:
        BadRequestError: If the data are no audio, are damaged or empty, or exceed a limit.
        MissingPackageError: If a package of the extra `audio` is not installed.
    """
    packages = _packages()
    if len(data) > limits.max_bytes:
        raise BadRequestError(
            f"{param}: a file must have at most {limits.max_bytes} bytes, got {len(data)}",
            param=param,
        )

    deadline = time.monotonic() + limits.decode_seconds

    def check() -> None:
        if is_cancelled() or time.monotonic() > deadline:
            raise _RefusedError(f"takes more than {limits.decode_seconds:g} s to decode")

    try:
        return _read(packages, data, limits, check)
    except _RefusedError as error:
        reason = str(error)
    except packages.soundfile.LibsndfileError as error:
        reason = _describe(str(getattr(error, "error_string", error)), data)
    except MemoryError:
        reason = "needs more memory to decode than there is"
    raise BadRequestError(f"{param}: the audio {reason}", param=param)


def _read(
    packages: _Packages, data: bytes, limits: AudioLimits, check: Callable[[], None]
) -> NDArray[np.float32]:
    if not data.startswith(_MARKS) and int.from_bytes(data[:2]) & _MPEG_SYNC != _MPEG_SYNC:
        raise _RefusedError(_describe("its format is unknown.", data))

    with packages.soundfile.SoundFile(_File(data)) as file:
        if file.format not in FORMATS:
            raise _RefusedError(f"is {file.format}; accepted are {', '.join(FORMATS)}")

        if not 1 <= file.samplerate <= _MAX_RATE or file.channels > _MAX_CHANNELS:
            raise _RefusedError(
                f"has {file.channels} channels of {file.samplerate} Hz; at most {_MAX_CHANNELS} "
                f"channels of {_MAX_RATE} Hz are accepted"
            )

        blocks = _limited(_mono_blocks(file, check), file.samplerate, limits)
        if file.samplerate != SAMPLE_RATE:
            blocks = _resampled(packages.soxr, blocks, file.samplerate)
        with np.errstate(all="ignore"):  # What is not finite is refused below.
            samples = np.concatenate([np.empty(0, np.float32), *blocks])
        if not len(samples):
            raise _RefusedError("has no samples")

        if not np.isfinite(samples).all():
            raise _RefusedError("has samples that are no finite numbers of float32")

        return samples


def _mono_blocks(file: Any, check: Callable[[], None]) -> Iterator[NDArray[np.float32]]:  # noqa: ANN401
    size = max(1, int(_BLOCK_SECONDS * file.samplerate))
    while True:
        check()
        block = file.read(size, dtype="float32", always_2d=True)
        if not len(block):
            return

        yield block.mean(axis=1, dtype=np.float32)


def _limited(
    blocks: Iterator[NDArray[np.float32]], rate: int, limits: AudioLimits
) -> Iterator[NDArray[np.float32]]:
    count = 0
    for block in blocks:
        count += len(block)
        if count > limits.max_seconds * rate:
            raise _RefusedError(
                f"is longer than {limits.max_seconds:g} s: send a part of it, or raise "
                "max_audio_seconds"
            )

        yield block


def _resampled(
    soxr: ModuleType, blocks: Iterator[NDArray[np.float32]], rate: int
) -> Iterator[NDArray[np.float32]]:
    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.empty(0, np.float32), last=True)


def _describe(reason: str, data: bytes) -> str:
    return (
        f"cannot be decoded: {reason[:_MAX_REASON]} Accepted are {', '.join(FORMATS)}; it begins "
        f"with {data[:8]!r}"
    )
