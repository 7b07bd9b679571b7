"""The wire models of a chat request's messages."""

from __future__ import annotations

__all__ = (
    "AssistantMessage",
    "DeveloperMessage",
    "JoinedText",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "audios_of",
    "image_part",
    "images_of",
    "text_part",
)

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, LiteralString, Self, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from aiomlc.api.protocol.base import FIRST_ERROR, UNKNOWN_IN_PART, FieldSink, WireModel
from aiomlc.runtime.audio.reference import AudioReference
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.validation.json_values import safe_repr

_TEXT_PART = "a text part must have the fields 'type' and 'text' and no others"
_IMAGE_PART = (
    "an image part must have the fields 'type' and 'image_url', which is a URL or an object with "
    "the fields 'url' and 'detail', and no others"
)
_PARTS = "messages[].content[]"
_DETAILS = ("auto", "low", "high", "original")
_AUDIO_PART = (
    "an audio part must have the fields 'type' and 'input_audio', which is an object with the "
    "fields 'data' (base64) and 'format', and no others"
)
_AUDIO_FORMATS = ("wav", "mp3", "flac", "ogg", "aiff")  # The file itself says which one it has.

_Reference = TypeVar("_Reference", ImageReference, AudioReference)
Part: TypeAlias = str | ImageReference | AudioReference


class JoinedText(str):
    """The text of a content that was given as parts, which a chat template may read one by one.

    Images and audio have no text.
    """

    __slots__ = ("parts",)
    parts: tuple[Part, ...]

    def __new__(cls, parts: Sequence[Part]) -> Self:
        """Join the texts of the parts."""
        text = super().__new__(cls, "".join(part for part in parts if isinstance(part, str)))
        text.parts = tuple(parts)
        return text


def images_of(messages: Sequence[Message]) -> list[tuple[str, ImageReference]]:
    """Return the images of messages in their order, each with the path of its part."""
    return _parts_of(messages, ImageReference)


def audios_of(messages: Sequence[Message]) -> list[tuple[str, AudioReference]]:
    """Return the audio of messages in its order, each with the path of its part."""
    return _parts_of(messages, AudioReference)


def _parts_of(messages: Sequence[Message], kind: type[_Reference]) -> list[tuple[str, _Reference]]:
    return [
        (f"messages[{index}].content[{position}]", part)
        for index, message in enumerate(messages)
        if isinstance(message.content, JoinedText)
        for position, part in enumerate(message.content.parts)
        if isinstance(part, kind)
    ]


def _join_text_parts(
    content: object, check_text: Callable[[object], str], info: ValidationInfo
) -> str:
    """Join a list of text parts into one string; check a string."""
    if isinstance(content, (str, bytes)) or not isinstance(content, Sequence):
        return check_text(content)

    return JoinedText([text_part(part, info.context, "only 'text'") for part in content])


def _join_parts(content: object, check_text: Callable[[object], str], info: ValidationInfo) -> str:
    """Join a list of parts with texts, images and audio; check a string."""
    if isinstance(content, (str, bytes)) or not isinstance(content, Sequence):
        return check_text(content)

    return JoinedText([_part(part, info.context) for part in content])


def _part(part: object, ignored: FieldSink | None) -> Part:
    if isinstance(part, Mapping) and part.get("type") == "image_url":
        return image_part(part, ignored)

    if isinstance(part, Mapping) and part.get("type") == "input_audio":
        return _audio_part(part, ignored)

    return text_part(part, ignored, "only 'text', 'image_url' and 'input_audio'")


def text_part(part: object, ignored: FieldSink | None, supported: str, path: str = _PARTS) -> str:
    """Return the text of a content part.

    Args:
        part: The part.
        ignored: Where unknown fields are noted; None rejects them.
        supported: The types that are supported, for messages.
        path: The path of such parts in the request.

    Raises:
        ValueError: If it is no such part.
    """
    if not isinstance(part, Mapping):
        raise ValueError(f"content parts must be objects, got {type(part).__name__}")

    if (kind := part.get("type")) != "text":
        raise ValueError(f"content part of type {safe_repr(kind)} is not supported, {supported}")

    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError(_TEXT_PART)

    _check_names(part, ("type", "text"), _TEXT_PART, ignored, path)
    return text


def image_part(
    part: Mapping[str, object], ignored: FieldSink | None, path: str = _PARTS
) -> ImageReference:
    """Return the image of a content part of type `image_url`; see `text_part`.

    Raises:
        ValueError: If it is no such part.
    """
    image = part.get("image_url")
    _check_names(part, ("type", "image_url"), _IMAGE_PART, ignored, path)
    if isinstance(image, Mapping):
        _check_names(image, ("url", "detail"), _IMAGE_PART, ignored, path)
        detail = image.get("detail")
        if detail is not None and detail not in _DETAILS:
            raise ValueError(
                f"the 'detail' of an image must be one of {', '.join(_DETAILS)}, got "
                f"{safe_repr(detail)}"
            )

        image = image.get("url")

    if not isinstance(image, (str, bytes, ImageData)) or not image:
        raise ValueError(_IMAGE_PART)

    return ImageReference(image)


def _audio_part(part: Mapping[str, object], ignored: FieldSink | None) -> AudioReference:
    audio = part.get("input_audio")
    _check_names(part, ("type", "input_audio"), _AUDIO_PART, ignored)
    if not isinstance(audio, Mapping):
        raise ValueError(_AUDIO_PART)

    _check_names(audio, ("data", "format"), _AUDIO_PART, ignored)
    if (name := audio.get("format")) is not None and name not in _AUDIO_FORMATS:
        raise ValueError(
            f"the 'format' of audio must be one of {', '.join(_AUDIO_FORMATS)}, got "
            f"{safe_repr(name)}"
        )

    data = audio.get("data")
    if not isinstance(data, (str, bytes)) or not data:
        raise ValueError(_AUDIO_PART)

    return AudioReference(data)


def _check_names(
    part: Mapping[str, object],
    known: Sequence[str],
    problem: LiteralString,
    ignored: FieldSink | None,
    path: str = _PARTS,
) -> None:
    """Require that a part has only known fields, or note that others are ignored."""
    others = [name for name in part if name not in known]
    if others and ignored is None:
        raise PydanticCustomError(UNKNOWN_IN_PART, problem)

    for name in others:
        assert ignored is not None, "else the part was rejected"
        ignored.add(f"{path}.{name}")


# Strict, because pydantic would decode bytes.
Text = Annotated[str, Field(strict=True), WrapValidator(_join_text_parts)]
Content = Annotated[
    str, Field(strict=True), WrapValidator(_join_parts)
]  #: Also with images and audio.


def _without(fields: object, *names: str) -> object:
    """Return the fields of an object without some that say nothing to the model."""
    if not isinstance(fields, Mapping):
        return fields

    return {name: value for name, value in fields.items() if name not in names}


class FunctionCall(WireModel):
    """The name of the called function and its arguments."""

    name: str
    #: A JSON object as text.
    arguments: Annotated[str, BeforeValidator(lambda value: "{}" if value is None else value)]

    @model_validator(mode="before")
    @classmethod
    def _drop_parsed(cls, fields: object) -> object:
        return _without(fields, "parsed_arguments")  # What OpenAI's client adds to an answer.


class ToolCall(WireModel):
    """A tool call generated by the model."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall

    @model_validator(mode="before")
    @classmethod
    def _drop_index(cls, fields: object) -> object:
        return _without(fields, "index")  # Of a streamed call.


class SystemMessage(WireModel):
    """Instructions for the model."""

    role: Literal["system"]
    content: Text
    name: str | None = None


class DeveloperMessage(WireModel):
    """A system message under OpenAI's newer name."""

    role: Literal["developer"]
    content: Text
    name: str | None = None


class UserMessage(WireModel):
    """A message of the user."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class AssistantMessage(WireModel):
    """A message of the model: text, tool calls, or both."""

    role: Literal["assistant"]
    content: Text | None = None
    refusal: str | None = None
    name: str | None = None
    reasoning_content: str | None = None  #: The reasoning before the content.
    reasoning: str | None = None  #: An alias of `reasoning_content`, which takes precedence.
    tool_calls: Annotated[tuple[ToolCall, ...], FIRST_ERROR] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_parsed(cls, fields: object) -> object:
        return _without(fields, "parsed")  # What OpenAI's client adds to an answer.

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("an assistant message must have content, refusal or tool_calls")

        return self


class ToolMessage(WireModel):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
]
