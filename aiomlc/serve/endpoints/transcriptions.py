"""Transcriptions and translations of audio."""

from __future__ import annotations

__all__ = ("TranscriptionEndpoint",)

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, final

from anyio.abc import TaskGroup
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.transcription import (
    Transcription,
    TranscriptionRequest,
    parse_transcription_request,
)
from aiomlc.api.transcription import TranscriptionStream, collect
from aiomlc.errors import BadRequestError
from aiomlc.serve.context import Context
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.event_encoder import TranscriptEventEncoder
from aiomlc.serve.http.event_stream import send_events
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.form import Form, read_form
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import send_json, send_response, to_json
from aiomlc.serve.http.subtitles import to_srt, to_vtt

_FILE: Final = "file"
#: The formats of text; the others are JSON.
_TEXTS: Mapping[str, Callable[[Transcription], str]] = MappingProxyType(
    {
        "text": lambda answer: answer.text + "\n",
        "srt": lambda answer: to_srt(answer.segments),
        "vtt": lambda answer: to_vtt(answer.segments),
    }
)
_FORMATS: Final = ("json", "verbose_json", *_TEXTS)
_WITHOUT_TIMES: Final = ("json", "text")
# Options of the library that a form has no fields for, and what to do instead.
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "task": "post to /v1/audio/translations to translate",
        "timestamps": "send response_format=verbose_json, srt or vtt to get times",
    }
)
_NUMBERS: Final = (
    "temperature",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)


@final
class TranscriptionEndpoint:
    """An endpoint of speech models; a request is cancelled when its client goes away.

    Args:
        context: What the endpoints share.
        task: What is done with the audio.
    """

    def __init__(self, context: Context, task: Literal["transcribe", "translate"]) -> None:
        self._context = context
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._context.options
        form = await read_form(scope, receive, options, _FILE)
        if form.file is None:
            raise HTTPError(400, f"{_FILE}: is required: the audio, as a file", param=_FILE)

        audio, answer = form.file, _AnswerForm(form)
        model = self._context.models.find(answer.fields.get("model"))
        fields = prepare_fields(answer.fields, model.name, options)
        fields["task"] = self._task

        async def respond(tasks: TaskGroup) -> None:
            parse = partial(parse_transcription_request, ignored=self._context.ignored)
            request: TranscriptionRequest = await parse_off_loop(parse, fields)
            await model.open()
            with answer.names_its_fields():
                stream = await model.engine.open_transcription(audio, request, _FILE)
            if answer.is_stream:
                encoder = TranscriptEventEncoder(stream)
                await send_events(stream, encoder, send=send, options=options, tasks=tasks)
            else:
                await self._send(answer, stream, (scope, receive, send))

        await run_until_disconnect(receive, respond)

    async def _send(
        self,
        form: _AnswerForm,
        stream: TranscriptionStream,
        connection: tuple[Scope, Receive, Send],
    ) -> None:
        answer = await collect(stream)
        seconds = self._context.options.write_timeout
        if (to_text := _TEXTS.get(form.response_format)) is not None:
            await send_response(PlainTextResponse(to_text(answer)), *connection, seconds=seconds)
            return

        is_verbose = form.response_format == "verbose_json"
        shown = answer if is_verbose else answer.model_dump(include={"text", "usage"})
        await send_json(to_json(shown), *connection, seconds=seconds)


@final
class _AnswerForm:
    """The fields of a form: those that the library validates, and those of the answer's form.

    Raises:
        HTTPError: If a field is invalid.
    """

    def __init__(self, form: Form) -> None:
        fields: dict[str, Any] = dict(form.fields)
        for name, instead in _INSTEAD.items():
            if name in fields:
                raise HTTPError(400, f"{name}: is not a field of forms: {instead}", param=name)

        self.response_format: str = fields.pop("response_format", "json")
        if self.response_format not in _FORMATS:
            raise _invalid("response_format", f"one of {', '.join(_FORMATS)}", self.response_format)

        self.is_stream: bool = _boolean(fields, "stream", default=False)
        fields.pop("stream", None)
        if self.is_stream and self.response_format not in _WITHOUT_TIMES:
            raise _invalid("response_format", "json with stream", self.response_format)

        granularities = fields.pop("timestamp_granularities", [])
        if isinstance(granularities, str):
            granularities = [granularities]
        if not set(granularities) <= {"segment"}:
            raise _invalid("timestamp_granularities", "segment: words have no times", granularities)

        self.fields = _typed(fields)
        self.fields["timestamps"] = self.response_format not in _WITHOUT_TIMES

    @contextmanager
    def names_its_fields(self) -> Iterator[None]:
        """Name the field of the form that asked for times, if the model has none.

        Raises:
            BadRequestError: As within the scope.
        """
        try:
            yield
        except BadRequestError as error:
            if error.param == "timestamps":
                error.param = "response_format"
            raise


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the types that the library expects: in a form, all are texts."""
    numbers = {name: _numbers(name, fields[name]) for name in _NUMBERS if name in fields}
    typed = fields | numbers
    if "seed" in fields:
        typed["seed"] = _integer("seed", fields["seed"])
    name = "condition_on_previous_text"
    if name in fields:
        typed[name] = _boolean(fields, name, default=True)
    if not typed.get("language"):
        typed.pop("language", None)  # Clients send an empty one for the default.
    return typed


def _boolean(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default

    match str(value).lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise _invalid(name, "true or false", value)


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise _invalid(name, "an integer", value) from None


def _numbers(name: str, value: str | list[str]) -> float | list[float]:
    """Return the number of a field, or those of a field whose name ends with `[]`."""
    return (
        [_number(name, item) for item in value] if isinstance(value, list) else _number(name, value)
    )


def _number(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise _invalid(name, "a number", value) from None


def _invalid(name: str, expected: str, value: object) -> HTTPError:
    return HTTPError(400, f"{name}: must be {expected}, got {str(value)[:100]!r}", param=name)
