"""`engine.chat.completions.parse`: an answer as a value of a Python type."""

from __future__ import annotations

__all__ = ("ParsedChatCompletion", "ParsedChoice", "ParsedMessage", "TypedAnswer")

from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from aiomlc.api.protocol.chat import ChatCompletion, Choice, ChoiceLogprobs, FinishReason
from aiomlc.api.protocol.messages import ToolCall
from aiomlc.api.protocol.usage import Usage
from aiomlc.errors import IncompleteAnswerError

T = TypeVar("T")


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


class TypedAnswer(Generic[T]):
    """A type as what an answer must be, and the way back."""

    def __init__(self, answer_type: type[T]) -> None:
        self._adapter = TypeAdapter(answer_type)
        self._name = getattr(answer_type, "__name__", "answer")

    @property
    def response_format(self) -> dict[str, Any]:
        """The field of the request."""
        schema = _closed(self._adapter.json_schema())
        return {
            "type": "json_schema",
            "json_schema": {"name": self._name, "strict": True, "schema": schema},
        }

    def read(self, completion: ChatCompletion) -> ParsedChatCompletion[T]:
        """The answer with the values of its messages.

        Raises:
            IncompleteAnswerError: a message was cut, or a check of the type's own refuses it.
        """
        choices = [self._choice(choice) for choice in completion.choices]
        return ParsedChatCompletion.model_construct(**{**dict(completion), "choices": choices})

    def _choice(self, choice: Choice) -> ParsedChoice[T]:
        message = choice.message
        parsed = None if message.tool_calls else self._parse(choice)
        told: ParsedMessage[T] = ParsedMessage.model_construct(
            **{**dict(message), "parsed": parsed}
        )
        return ParsedChoice.model_construct(**{**dict(choice), "message": told})

    def _parse(self, choice: Choice) -> T:
        text = choice.message.content or ""
        if choice.finish_reason == "length":
            raise IncompleteAnswerError("the answer was cut at the limit of its tokens", text=text)

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise IncompleteAnswerError(
                f"the answer is no {self._name}: {error.errors(include_url=False)[0]['msg']}",
                text=text,
            ) from error


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
