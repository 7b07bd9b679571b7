"""The config of an audio tower: convolutions over log-mel frames, and a transformer."""

from __future__ import annotations

__all__ = ("BATCH_CHUNKS", "CONV_TAPS", "AudioConfig", "halved")

from dataclasses import dataclass
from typing import Final, Literal

from aiomlc.models.config.tower import TowerConfig

BATCH_CHUNKS: Final = 4  #: That are convolved at once: each takes 40 MB in Qwen 3 ASR.
CONV_TAPS: Final = 9  #: The numbers that a convolution reads of a channel: three frames and bands.
_NUM_CONVS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioConfig(TowerConfig):
    """The sizes that determine the graph of an audio tower.

    A recording is divided into chunks, which are convolved apart from each other, and windows of
    several chunks, within which positions see each other.
    """

    kind: Literal["audio"] = "audio"
    num_mels: int  #: Log-mel bands of a frame.
    chunk_frames: int  #: Frames of a chunk.
    window_chunks: int  #: Chunks of a window.
    conv_channels: int  #: Of each of the three convolutions, whose strides are 2.

    @property
    def conv_frames(self) -> tuple[int, ...]:
        """Positions in time of a chunk: before the convolutions, and after each."""
        return _halvings(self.chunk_frames)

    @property
    def conv_bands(self) -> tuple[int, ...]:
        """Positions in frequency: before the convolutions, and after each."""
        return _halvings(self.num_mels)

    @property
    def chunk_rows(self) -> int:
        """Output rows of a chunk."""
        return self.conv_frames[-1]

    @property
    def chunk_floats(self) -> int:
        """The numbers of a chunk that exist at once in the convolutions, at most: the outputs of
        the first, and what the second reads, in two orders of columns."""
        first, second = (
            frames * bands
            for frames, bands in zip(self.conv_frames[1:3], self.conv_bands[1:3], strict=True)
        )
        return self.conv_channels * (2 * first + 2 * CONV_TAPS * second)


def halved(count: int) -> int:
    """Return the outputs of a convolution of three taps whose stride is 2, with a zero before."""
    return (count + 1) // 2


def _halvings(count: int) -> tuple[int, ...]:
    counts = [count]
    for _ in range(_NUM_CONVS):
        counts.append(halved(counts[-1]))
    return tuple(counts)
