"""Transcriptions as subtitles: SubRip (`srt`) and WebVTT (`vtt`)."""

from __future__ import annotations

__all__ = ("to_srt", "to_vtt")

from collections.abc import Iterable

from aiomlc.api.protocol.transcription import TranscriptionSegment


def to_srt(segments: Iterable[TranscriptionSegment]) -> str:
    """Return the segments as SubRip."""
    return "".join(
        f"{number}\n{_time(each.start, ',')} --> {_time(each.end, ',')}\n{_text(each)}\n\n"
        for number, each in enumerate(segments, 1)
    )


def to_vtt(segments: Iterable[TranscriptionSegment]) -> str:
    """Return the segments as WebVTT."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(each.start, '.')} --> {_time(each.end, '.')}\n{_text(each)}\n\n"
        for each in segments
    )


def _text(segment: TranscriptionSegment) -> str:
    # An empty line, or an arrow, would end the text.
    lines = (line for line in segment.text.strip().splitlines() if line.strip())
    return "\n".join(lines).replace("-->", "->")


def _time(seconds: float, separator: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{separator}{rest % 1000:03}"
