"""The segments of a window: its tokens, divided at pairs of timestamps."""

from __future__ import annotations

__all__ = ("FRAMES_PER_SECOND", "FRAMES_PER_TIMESTAMP", "TokenSegment", "split_window")

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

FRAMES_PER_SECOND: Final = 100
FRAMES_PER_TIMESTAMP: Final = 2


@dataclass(frozen=True, slots=True)
class TokenSegment:
    """A part of the audio and the tokens that were heard in it."""

    begin: int  #: The frame at which it begins, from the start of the audio.
    end: int
    token_ids: tuple[int, ...]  #: With its timestamps.


class SplitWindow(NamedTuple):
    """The segments of a window, and where the next window begins."""

    segments: list[TokenSegment]
    num_frames: int  #: Of this window that are done.


def split_window(
    token_ids: Sequence[int], first_timestamp: int, begin: int, num_frames: int
) -> SplitWindow:
    """Divide the tokens of a window.

    Two timestamps in a row end a segment. What follows the last of them is cut off, because the
    window may end within it, and heard again by the next window; unless the tokens end with one
    timestamp, after which there is no speech.

    Args:
        token_ids: Without prompt and end.
        first_timestamp: The token of 0 seconds.
        begin: The frame at which the window begins.
        num_frames: Frames of audio in it.
    """
    is_time = [token >= first_timestamp for token in token_ids]
    ends = [i + 1 for i in range(len(is_time) - 1) if is_time[i] and is_time[i + 1]]
    if not ends:
        end = _last_end(token_ids, first_timestamp, num_frames)
        return SplitWindow([TokenSegment(begin, begin + end, tuple(token_ids))], num_frames)

    ends_with_one = is_time[-2:] == [False, True]
    if ends_with_one:
        ends.append(len(token_ids))
    segments = []
    for start, end in zip([0, *ends], ends, strict=False):
        part = tuple(token_ids[start:end])
        first, last = (begin + _frames(part[i], first_timestamp) for i in (0, -1))
        segments.append(TokenSegment(first, last, part))
    if ends_with_one:
        return SplitWindow(segments, num_frames)

    # Only without the rules of timestamps can the last one be that of the begin.
    done = _frames(token_ids[ends[-1] - 1], first_timestamp)
    return SplitWindow(segments, done or num_frames)


def _last_end(token_ids: Sequence[int], first_timestamp: int, num_frames: int) -> int:
    """Return the last timestamp in frames, or the end of the window if there is none after 0."""
    last = next((token for token in reversed(token_ids) if token >= first_timestamp), None)
    if last is None or last == first_timestamp:
        return num_frames

    return _frames(last, first_timestamp)


def _frames(token: int, first_timestamp: int) -> int:
    return max(0, token - first_timestamp) * FRAMES_PER_TIMESTAMP
