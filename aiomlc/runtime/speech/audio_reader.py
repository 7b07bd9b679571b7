"""An audio tower, with the features that are its inputs."""

from __future__ import annotations

__all__ = ("AudioReader", "AudioTower", "ChunkedAudio")

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

import numpy as np

from aiomlc.models.config.audio import BATCH_CHUNKS, AudioConfig, halved
from aiomlc.runtime.audio.recording import Recording
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.towers.tower_reader import EmbeddedItem

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_ROWS: Final = 2048  # Of windows that are encoded at once.
_MAX_TIMESCALE: Final = 10_000.0
_TAPS: Final = 3  # Of a convolution along each axis.


class AudioTower(Protocol):
    """A compiled tower."""

    def forward(
        self, inputs: Mapping[str, NDArray[Any]], function: str = "encode"
    ) -> NDArray[np.float32]:
        """Return rows that a function of the library computes. Blocks; thread-safe."""
        ...


class ChunkedAudio(NamedTuple):
    """The features of a recording."""

    chunks: NDArray[np.float32]  #: `[chunks, frames, mels]`, the last one followed by zeros.
    num_rows: int  #: Output rows: those of the frames that are not padding.


@final
class AudioReader:
    """A `PromptReader` of recordings.

    Args:
        tower: The tower.
        config: Its sizes.
        features: The log-mel frames that it reads.
        token: The token whose embeddings are replaced, by which templates stand for a recording.
        min_samples: What a shorter recording is padded to.
    """

    tower_name: str = "audio tower"
    item_name: str = "recording"

    def __init__(
        self,
        tower: AudioTower,
        config: AudioConfig,
        features: LogMel,
        token: str,
        min_samples: int,
    ) -> None:
        self._tower = tower
        self._config = config
        self._features = features
        self._min_samples = min_samples
        self.token: str = token

    @property
    def placeholder(self) -> str:
        """The text by which chat templates stand for a recording."""
        return self.token

    @property
    def rows_per_second(self) -> float:
        """Output rows of a second of audio."""
        features, config = self._features, self._config
        chunks = features.sample_rate / features.hop / config.chunk_frames
        return config.chunk_rows * chunks

    def process(self, item: Recording) -> ChunkedAudio:
        """Return the log-mel frames of a recording. Blocks."""
        samples = item.samples
        missing = max(0, self._min_samples - len(samples))
        frames = self._features.features(np.pad(samples, (0, missing)))
        size = self._config.chunk_frames
        full, rest = divmod(len(frames), size)
        padded = np.pad(frames, ((0, -len(frames) % size), (0, 0)))
        last = halved(halved(halved(rest)))
        num_rows = full * self._config.chunk_rows + last
        return ChunkedAudio(padded.reshape(-1, size, frames.shape[1]), num_rows)

    def num_tokens(self, inputs: ChunkedAudio) -> int:
        """Return the rows of a recording."""
        return inputs.num_rows

    def embed(self, batch: Sequence[ChunkedAudio]) -> list[EmbeddedItem]:
        """Return the recordings of a batch. Blocks."""
        states = np.concatenate(self._convolve(np.concatenate([audio.chunks for audio in batch])))
        begins = np.cumsum([0, *(len(audio.chunks) for audio in batch)]) * self._config.chunk_rows
        starts = zip(begins, batch, strict=False)
        parts = [states[begin : begin + audio.num_rows] for begin, audio in starts]
        window = self._config.window_chunks * self._config.chunk_rows
        windows = [
            part[begin : begin + window] for part in parts for begin in range(0, len(part), window)
        ]
        rows = np.concatenate(self._encode(windows))
        ends = np.cumsum([audio.num_rows for audio in batch])[:-1]
        return [EmbeddedItem(self.token * len(part), part.copy()) for part in np.split(rows, ends)]

    def _convolve(self, chunks: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the states of all rows of the chunks, `[rows, hidden]`, in parts."""
        parts = []
        for begin in range(0, len(chunks), BATCH_CHUNKS):
            some = chunks[begin : begin + BATCH_CHUNKS]
            grids = zip(self._config.conv_frames[1:], self._config.conv_bands[1:], strict=True)
            inputs = {"taps": _first_taps(some), **_orders(len(some), tuple(grids))}
            states = self._tower.forward(inputs, "convolve")
            parts.append(states + np.tile(self._positions, (len(some), 1)))
        return parts

    def _encode(self, windows: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Return the rows of windows, in parts of at most so many rows or one window."""
        parts: list[NDArray[np.float32]] = []
        waiting: list[NDArray[np.float32]] = []
        count = 0
        for window in windows:
            if waiting and count + len(window) > _BATCH_ROWS:
                parts.append(self._encode_together(waiting))
                waiting, count = [], 0
            waiting.append(window)
            count += len(window)
        return [*parts, self._encode_together(waiting)]

    def _encode_together(self, windows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        lengths = [len(window) for window in windows]
        positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        return self._tower.forward(
            {
                "states": np.concatenate(windows),
                "positions": positions,
                "lengths": np.array(lengths, np.int32),
            }
        )

    @cached_property
    def _positions(self) -> NDArray[np.float32]:
        """Sines and cosines of the positions in a chunk, `[rows, hidden]`."""
        half = self._config.hidden_size // 2
        step = np.float32(np.log(_MAX_TIMESCALE) / max(1, half - 1))
        frequencies = np.exp(-step * np.arange(half, dtype=np.float32))
        angles = np.arange(self._config.chunk_rows, dtype=np.float32)[:, np.newaxis] * frequencies
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _first_taps(chunks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what the first convolution reads, `[positions and a row of padding, 9]`."""
    padded = np.pad(chunks, ((0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (_TAPS, _TAPS), axis=(1, 2))
    # `[chunks, frames, bands, taps of frames, taps of bands]`; a checkpoint has bands first.
    taps = views[:, ::2, ::2].swapaxes(-1, -2).reshape(-1, _TAPS * _TAPS)
    return np.concatenate([taps, np.zeros((1, taps.shape[1]), np.float32)])


@lru_cache(maxsize=16)
def _orders(count: int, grids: tuple[tuple[int, int], ...]) -> Mapping[str, NDArray[Any]]:
    """Return the rows that the later convolutions read, and which rows are padding.

    Args:
        count: The number of chunks.
        grids: The positions in time and frequency after each convolution.
    """
    (frames, bands) = grids[-1]
    rows = np.arange(count * frames * bands, dtype=np.int32)
    return {
        "weights1": _weights(count, grids[0]),
        "order2": _order(count, grids[0], grids[1], has_padding=True),
        "weights2": _weights(count, grids[1]),
        "order3": _order(count, grids[1], grids[2], has_padding=False),
        "order": rows.reshape(-1, bands),
    }


def _weights(count: int, grid: tuple[int, int]) -> NDArray[np.float32]:
    weights = np.ones((count * grid[0] * grid[1] + 1, 1), np.float32)
    weights[-1] = 0.0
    return weights


def _order(
    count: int, source: tuple[int, int], target: tuple[int, int], *, has_padding: bool
) -> NDArray[np.int32]:
    """Return the rows of the source grids that each position of the target grids reads.

    The row after those of the source is padding.
    """
    frames, bands = source
    padding = count * frames * bands
    taps = np.arange(-1, _TAPS - 1)
    frame = 2 * np.arange(target[0])[:, np.newaxis] + taps  # `[target frames, taps]`
    band = 2 * np.arange(target[1])[:, np.newaxis] + taps
    is_inside = np.logical_and(
        ((frame >= 0) & (frame < frames))[:, np.newaxis, np.newaxis, :],
        ((band >= 0) & (band < bands))[np.newaxis, :, :, np.newaxis],
    )
    local = frame[:, np.newaxis, np.newaxis, :] * bands + band[np.newaxis, :, :, np.newaxis]
    starts = np.arange(count)[:, np.newaxis, np.newaxis, np.newaxis, np.newaxis] * frames * bands
    order = np.where(is_inside, starts + local, padding).reshape(-1, _TAPS * _TAPS)
    if has_padding:
        order = np.concatenate([order, np.full((1, order.shape[1]), padding)])
    return order.astype(np.int32)
