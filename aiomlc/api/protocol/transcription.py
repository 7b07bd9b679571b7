"""The wire models of transcriptions; those of answers have the shape of OpenAI's."""

from __future__ import annotations

__all__ = (
    "TranscriptDelta",
    "TranscriptDone",
    "Transcription",
    "TranscriptionRequest",
    "TranscriptionSegment",
    "TranscriptionUsage",
    "parse_transcription_request",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from aiomlc.api.protocol.base import WireModel, parse
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.request import Name, with_extra_body
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Integer, Number

_MAX_PROMPT = 2**16  # Characters; the model reads the last few hundred.
_MAX_TEMPERATURES = 16
_STEP = 0.2  # From a temperature to the next one that is tried.


def _to_temperatures(value: object) -> object:
    """Return the temperatures to try: those of a list, or a number and the higher ones up to 1."""
    if isinstance(value, (list, tuple)):
        if not 1 <= len(value) <= _MAX_TEMPERATURES:
            raise ValueError(f"must have 1 to {_MAX_TEMPERATURES} numbers, got {safe_repr(value)}")

        return tuple(value)

    first = 0.0 if value is None else value
    if isinstance(first, bool) or not isinstance(first, (int, float)) or not 0 <= first <= 1:
        raise ValueError(f"must be a number from 0 to 1, or a list, got {safe_repr(value)}")

    count = int((1.0 - first) / _STEP + 1e-6)
    return (float(first), *(round(first + _STEP * (index + 1), 6) for index in range(count)))


Temperature = Annotated[float, Number(ge=0, le=1)]
Threshold = Annotated[float | None, Number()]


class TranscriptionRequest(WireModel):
    """A validated request to transcribe audio, which is not a part of it."""

    model: Name | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    language: Name | None = None  #: A code, such as `en`; None detects it.
    prompt: Annotated[StrictStr, Field(max_length=_MAX_PROMPT)] = ""
    temperature: Annotated[
        tuple[Temperature, ...], BeforeValidator(_to_temperatures), Field(validate_default=True)
    ] = None  # type: ignore[assignment]  # The validator makes it a tuple.
    timestamps: StrictBool = False
    # Extensions, with the names of Whisper's own program.
    condition_on_previous_text: StrictBool = True
    compression_ratio_threshold: Threshold = 2.4
    logprob_threshold: Threshold = -1.0
    no_speech_threshold: Threshold = 0.6
    seed: Annotated[int | None, Integer(ge=0)] = None


class TranscriptionSegment(WireModel):
    """A part of the audio with its text."""

    id: int
    seek: int  #: The start of its window, in frames of 10 ms.
    start: float  #: Seconds.
    end: float
    text: str
    tokens: list[int]
    temperature: float
    # Of its window; None if the model does not hear windows one by one.
    avg_logprob: float | None = None  #: Of the tokens.
    compression_ratio: float | None = None  #: Of the text.
    no_speech_prob: float | None = None


class TranscriptionUsage(WireModel):
    """The audio that was transcribed."""

    type: Literal["duration"] = "duration"
    seconds: float


class Transcription(WireModel):
    """The text of a recording, as OpenAI's `verbose_json`."""

    task: Literal["transcribe", "translate"]
    language: str | None  #: A code, such as `en`; None if the model named no language.
    duration: float  #: Seconds.
    text: str
    segments: list[TranscriptionSegment]  #: Empty if the model gives no times.
    usage: TranscriptionUsage


class TranscriptDelta(WireModel):
    """The event of new text."""

    type: Literal["transcript.text.delta"] = "transcript.text.delta"
    delta: str


class TranscriptDone(WireModel):
    """The event of the whole text, the last one."""

    type: Literal["transcript.text.done"] = "transcript.text.done"
    text: str


def parse_transcription_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> TranscriptionRequest:
    """Validate the fields of a request to transcribe audio.

    Args:
        ignored: Where unknown fields are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid or unknown; `param` names it.
    """
    return parse(TranscriptionRequest, with_extra_body(fields), ignored)
