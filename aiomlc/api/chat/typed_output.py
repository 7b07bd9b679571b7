"""An answer as a value of a Python type: `parse`, and `stream` with a type."""

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
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

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

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)
# What a request's field may be; everything else is a type.
_JSON = (Mapping, BaseModel, str, int, float, list, type(None))


class _Record(BaseModel):
    # The values were validated when they were made, and one may be of any type.
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, arbitrary_types_allowed=True)


class ParsedMessage(_Record, Generic[T]):
    """What the model said, and the value that it stands for."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    parsed: T | None  #: None where it called a tool instead.


class ParsedChoice(_Record, Generic[T]):
    """One answer."""

    index: int
    message: ParsedMessage[T]
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason


class ParsedChatCompletion(_Record, Generic[T]):
    """A whole answer whose messages know their values."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[ParsedChoice[T]]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_logprobs: PromptLogprobs = None


class OutputReader(Protocol[T_co, C_co]):
    """What a request says of its answer's type, and how the answer is read."""

    @property
    def response_format(self) -> object:
        """The field of the request."""

    @property
    def is_json(self) -> bool:
        """Whether the text is the JSON of a value."""

    def value(self, text: str, finish_reason: FinishReason) -> T_co | None:
        """The value of a whole text.

        Raises:
            IncompleteAnswerError: the text was cut, or a check of the type's own refuses it.
        """

    def read(self, completion: ChatCompletion) -> C_co:
        """The whole answer.

        Raises:
            IncompleteAnswerError: as `value`.
        """


def output_reader(response_format: object) -> OutputReader[Any, Any]:
    """The reader of an answer that has to be of a type, or of the form of a request's field.

    Raises:
        BadRequestError: it is neither.
    """
    if isinstance(response_format, _JSON):
        return TextOutput(response_format)

    answer_type: Any = response_format  # Types that pydantic knows need not be of class `type`.
    return TypedOutput(answer_type)


@final
class TextOutput:
    """An answer that is text."""

    def __init__(self, response_format: object) -> None:
        self.response_format = response_format

    @property
    def is_json(self) -> bool:
        """False: nobody said what value it would be."""
        return False

    def value(self, text: str, finish_reason: FinishReason) -> None:
        """No value."""

    def read(self, completion: ChatCompletion) -> ChatCompletion:
        """The answer as it is."""
        return completion


@final
class TypedOutput(Generic[T]):
    """A type as what an answer must be, and the way back.

    Raises:
        BadRequestError: pydantic does not know the type, or JSON has nothing for it.
    """

    def __init__(self, answer_type: type[T]) -> None:
        self._name = getattr(answer_type, "__name__", "answer")
        try:
            self._adapter = TypeAdapter(answer_type)
            self._schema = _closed(self._adapter.json_schema())
        except PydanticUserError as error:
            raise BadRequestError(
                f"response_format: no answer can be of this type: {error}", param="response_format"
            ) from error

    @property
    def is_json(self) -> bool:
        """True."""
        return True

    @property
    def response_format(self) -> dict[str, Any]:
        """The field of the request."""
        return {
            "type": "json_schema",
            "json_schema": {"name": self._name, "strict": True, "schema": self._schema},
        }

    def read(self, completion: ChatCompletion) -> ParsedChatCompletion[T]:
        """The answer with the values of its messages.

        Raises:
            IncompleteAnswerError: a message was cut, or a check of the type's own refuses it.
        """
        choices = [self._choice(choice) for choice in completion.choices]
        return ParsedChatCompletion.model_construct(**{**dict(completion), "choices": choices})

    def value(self, text: str, finish_reason: FinishReason) -> T:
        """The value of a whole text.

        Raises:
            IncompleteAnswerError: the text was cut, or a check of the type's own refuses it.
        """
        if finish_reason == "length":
            raise IncompleteAnswerError("the answer was cut at the limit of its tokens", text=text)

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise IncompleteAnswerError(
                f"the answer is no {self._name}: {error.errors(include_url=False)[0]['msg']}",
                text=text,
            ) from error

    def _choice(self, choice: Choice) -> ParsedChoice[T]:
        message = choice.message
        parsed = (
            None if message.tool_calls else self.value(message.content or "", choice.finish_reason)
        )
        told: ParsedMessage[T] = ParsedMessage.model_construct(
            **{**dict(message), "parsed": parsed}
        )
        return ParsedChoice.model_construct(**{**dict(choice), "message": told})


def _closed(schema: Any) -> Any:  # noqa: ANN401 - JSON.
    """A schema whose objects have all of their properties and no others: OpenAI's strict form."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]

    if not isinstance(schema, dict):
        return schema

    closed = {key: _closed(value) for key, value in schema.items() if key != "default"}
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        closed["properties"] = {name: _closed(value) for name, value in properties.items()}
        closed["required"] = list(properties)
        closed.setdefault("additionalProperties", False)

    return closed
