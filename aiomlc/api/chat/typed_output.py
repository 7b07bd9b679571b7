"""Typed output: chat completions parsed into Python values, for `parse` and `stream`."""

from __future__ import annotations

__all__ = (
    "OutputReader",
    "ParsedChatCompletion",
    "ParsedChoice",
    "ParsedMessage",
    "TextOutput",
    "TypedOutput",
    "output_reader",
)

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from aiomlc.api.protocol.chat import (
    ChatCompletion,
    Choice,
    ChoiceLogprobs,
    FinishReason,
    PromptLogprobs,
)
from aiomlc.api.protocol.messages import ToolCall
from aiomlc.api.protocol.usage import Usage
from aiomlc.errors import BadRequestError, IncompleteAnswerError
from aiomlc.validation.error_messages import plain_message
from aiomlc.validation.json_values import safe_repr

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)
# Keywords of JSON schemas whose values are schemas by name, and those whose values are no schemas.
_SCHEMAS_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_VALUES = frozenset({"const", "dependentRequired", "enum", "examples"})
# Values of the request field `response_format`; every other value is a Python type.
_FIELD_TYPES = (Mapping, BaseModel, str, int, float, list, type(None))


class _Record(BaseModel):
    # The values are already validated, and `parsed` may be of any type.
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, arbitrary_types_allowed=True)


class ParsedMessage(_Record, Generic[T]):
    """The model's message, with its content parsed into a value."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    parsed: T | None  #: None if the model called a tool instead.


class ParsedChoice(_Record, Generic[T]):
    """One of the generated choices."""

    index: int
    message: ParsedMessage[T]
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason


class ParsedChatCompletion(_Record, Generic[T]):
    """A chat completion whose messages carry parsed values."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[ParsedChoice[T]]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_logprobs: PromptLogprobs = None


class OutputReader(Protocol[T_co, C_co]):
    """The output type that a request asks for, and the parser of the completion."""

    @property
    def response_format(self) -> object:
        """The `response_format` field of the request."""
        ...

    @property
    def is_json(self) -> bool:
        """Whether the content is the JSON of a typed value."""
        ...

    def parse(self, text: str, finish_reason: FinishReason) -> T_co | None:
        """Parse the complete content of a message.

        Raises:
            IncompleteAnswerError: If the text was cut off or fails validation.
        """
        ...

    def read(self, completion: ChatCompletion) -> C_co:
        """Return the completion with parsed messages.

        Raises:
            IncompleteAnswerError: If a message was cut off or fails validation.
        """
        ...


def output_reader(response_format: object) -> OutputReader[Any, Any]:
    """Return the reader for a Python type, or for a plain `response_format` field.

    Raises:
        BadRequestError: If a type is not supported by pydantic, or has no JSON schema.
    """
    if isinstance(response_format, _FIELD_TYPES):
        return TextOutput(response_format)

    # A type that pydantic supports is not always an instance of `type`.
    output_type: Any = response_format
    return TypedOutput(output_type)


@final
class TextOutput:
    """A reader of completions whose content is plain text."""

    def __init__(self, response_format: object) -> None:
        self.response_format = response_format

    @property
    def is_json(self) -> bool:
        """Always False: the request has no output type."""
        return False

    def parse(self, text: str, finish_reason: FinishReason) -> None:
        """Return None: plain text has no typed value."""

    def read(self, completion: ChatCompletion) -> ChatCompletion:
        """Return the completion unchanged."""
        return completion


@final
class TypedOutput(Generic[T]):
    """A reader that requests a type's JSON schema and validates the content into the type.

    Raises:
        BadRequestError: If pydantic does not support the type, or the type has no JSON schema.
    """

    def __init__(self, output_type: type[T]) -> None:
        if not _may_be_type(output_type):
            raise BadRequestError(
                "response_format: must be a type that pydantic supports, got "
                f"{safe_repr(output_type)}",
                param="response_format",
            )

        try:
            self._name = str(getattr(output_type, "__name__", "answer"))
            self._adapter = TypeAdapter(output_type)
            self._schema = _to_strict_schema(self._adapter.json_schema())
        # A type runs code of the caller's: forward references, validators, metaclasses.
        except Exception as error:
            raise BadRequestError(
                "response_format: pydantic does not support the type: "
                f"{type(error).__name__}: {_first_line(error)}",
                param="response_format",
            ) from error

    @property
    def is_json(self) -> bool:
        """Always True."""
        return True

    @property
    def response_format(self) -> dict[str, Any]:
        """The `response_format` field of the request: the type's JSON schema."""
        return {
            "type": "json_schema",
            "json_schema": {"name": self._name, "strict": True, "schema": self._schema},
        }

    def read(self, completion: ChatCompletion) -> ParsedChatCompletion[T]:
        """Return the completion with the parsed value of each message.

        Raises:
            IncompleteAnswerError: If a message was cut off or fails validation.
        """
        choices = [self._parse_choice(choice) for choice in completion.choices]
        return ParsedChatCompletion.model_construct(**{**dict(completion), "choices": choices})

    def parse(self, text: str, finish_reason: FinishReason) -> T:
        """Validate the complete content of a message into a value.

        Raises:
            IncompleteAnswerError: If the text was cut off or fails validation.
        """
        if finish_reason == "length":
            raise IncompleteAnswerError(
                "the completion was cut off at max_tokens, or at the end of the context window",
                text=text,
            )

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise IncompleteAnswerError(
                f"the completion is not a valid {self._name}: "
                f"{plain_message(error.errors(include_url=False)[0]['msg'])}",
                text=text,
            ) from error

    def _parse_choice(self, choice: Choice) -> ParsedChoice[T]:
        message = choice.message
        parsed = (
            None if message.tool_calls else self.parse(message.content or "", choice.finish_reason)
        )
        parsed_message: ParsedMessage[T] = ParsedMessage.model_construct(
            **{**dict(message), "parsed": parsed}
        )
        return ParsedChoice.model_construct(**{**dict(choice), "message": parsed_message})


def _may_be_type(value: object) -> bool:
    """Return whether a value may be a type or a type form, such as `list[int]` or `A | None`."""
    form_modules = ("typing", "typing_extensions", "types", "pydantic")
    return isinstance(value, type) or type(value).__module__.partition(".")[0] in form_modules


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, whose `__str__` may be a caller's, too."""
    with suppress(Exception):
        return str(error).strip().partition("\n")[0]

    return "no message"


def _to_strict_schema(schema: Any) -> Any:  # noqa: ANN401 - JSON.
    """Convert a JSON schema into OpenAI's strict form.

    Every object requires all of its properties and allows no others; defaults are removed.
    """
    if isinstance(schema, list):
        return [_to_strict_schema(item) for item in schema]

    if not isinstance(schema, dict):
        return schema

    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMAS_BY_NAME and isinstance(value, dict):
            strict[key] = {name: _to_strict_schema(item) for name, item in value.items()}
        elif key != "default":
            strict[key] = value if key in _VALUES else _to_strict_schema(value)

    properties = strict.get("properties")
    if strict.get("type") == "object" and isinstance(properties, dict):
        strict["required"] = list(properties)
        strict.setdefault("additionalProperties", False)

    return strict
