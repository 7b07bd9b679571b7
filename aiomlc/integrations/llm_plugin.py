"""A plugin of the command `llm` and its Python API: models that run in the process."""

from __future__ import annotations

__all__ = ("AsyncLLMModel", "LLMModel", "LLMOptions", "register_models")

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, final

from anyio import to_thread
from anyio.lowlevel import RunVar
from pydantic import Field

from aiomlc.config import BUNDLED_FOLDER, BUNDLED_NAME
from aiomlc.errors import BadRequestError, IncompleteAnswerError, ModelLoadError
from aiomlc.integrations.frameworks import framework
from aiomlc.models import read_description
from aiomlc.sources.cached_models import CachedModel, models_within

with framework("llm", "llm"):
    import llm
    from llm.parts import (
        AttachmentPart,
        Message,
        Part,
        ReasoningPart,
        StreamEvent,
        TextPart,
        ToolCallPart,
        ToolResultPart,
    )

if TYPE_CHECKING:
    from aiomlc.api.engines.async_engine import AsyncMLCEngine
    from aiomlc.api.engines.mlc_engine import MLCEngine
    from aiomlc.api.protocol.chat import ChatCompletionChunk

_PREFIX = "aiomlc/"
_IMAGES = frozenset(f"image/{kind}" for kind in ("bmp", "gif", "jpeg", "png", "tiff", "webp"))


class LLMOptions(llm.Options):
    """The options of a prompt (`-o`); those that are not given are left to the engine."""

    temperature: float | None = Field(None, description="Randomness: 0 picks the likeliest token")
    top_p: float | None = Field(None, description="Probability of the tokens to sample from")
    max_tokens: int | None = Field(None, description="The maximum number of generated tokens")
    min_tokens: int | None = Field(None, description="The minimum number of generated tokens")
    seed: int | None = Field(None, description="Makes the answer reproducible")
    stop: str | None = Field(None, description="A string at which the answer ends")
    presence_penalty: float | None = Field(None, description="Penalty of tokens that have occurred")
    frequency_penalty: float | None = Field(None, description="Penalty per occurrence of a token")
    reasoning_effort: str | None = Field(None, description="Passed to the chat template")


@final
class LLMModel(llm.Model):
    """A model for blocking code; its engine is opened by the first prompt and stays open."""

    can_stream: bool = True
    supports_schema: bool = True
    supports_tools: bool = True
    attachment_types: set[str] | frozenset[str] = (
        _IMAGES  # The engine refuses those its model cannot read.
    )
    Options: type[LLMOptions] = LLMOptions  # type: ignore[assignment] # llm declares a class.

    def __init__(self, name: str | None = None) -> None:
        self.model_id: str = _model_id(name)
        self._name = name
        self._engine: MLCEngine | None = None
        self._lock = Lock()

    @property
    def engine(self) -> MLCEngine:
        """The engine, which is opened if it is not open."""
        from aiomlc.api.engines.mlc_engine import MLCEngine

        with self._lock:
            if self._engine is None:
                self._engine = MLCEngine(self._name)

            return self._engine

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None = None,
    ) -> Iterator[str | StreamEvent]:
        """Yield the events of an answer; `llm` calls this.

        Raises:
            AiomlcError: As `engine.chat.completions.create`.
        """
        answer = _Answer(response)
        with self.engine.chat.completions.create(**_request_fields(prompt)) as chunks:
            for chunk in chunks:
                yield from answer.read(chunk)

        answer.finish()


@final
class AsyncLLMModel(llm.AsyncModel):
    """A model for async code, on asyncio and trio; each event loop opens its engine."""

    can_stream: bool = True
    supports_schema: bool = True
    supports_tools: bool = True
    attachment_types: set[str] | frozenset[str] = (
        _IMAGES  # The engine refuses those its model cannot read.
    )
    Options: type[LLMOptions] = LLMOptions  # type: ignore[assignment] # llm declares a class.

    def __init__(self, name: str | None = None) -> None:
        self.model_id: str = _model_id(name)
        self._name = name
        self._engine: RunVar[AsyncMLCEngine | None] = RunVar(self.model_id, None)

    @property
    def engine(self) -> AsyncMLCEngine:
        """The engine of this event loop, which its first prompt opens, and its end closes.

        Raises:
            anyio.NoEventLoopError: Outside of an event loop.
        """
        from aiomlc.api.engines.async_engine import AsyncMLCEngine

        engine = self._engine.get()
        if engine is None:
            engine = AsyncMLCEngine(self._name)
            self._engine.set(engine)

        return engine

    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None = None,
    ) -> AsyncGenerator[str | StreamEvent, None]:
        """Yield the events of an answer; `llm` calls this.

        Raises:
            AiomlcError: As `engine.chat.completions.create`.
        """
        answer = _Answer(response)
        fields = await to_thread.run_sync(_request_fields, prompt)
        chunks = await self.engine.chat.completions.create(**fields)
        try:
            async for chunk in chunks:
                for event in answer.read(chunk):
                    yield event
        finally:
            chunks.close()

        answer.finish()


@llm.hookimpl
def register_models(register: Callable[..., None], model_aliases: object) -> None:
    """Register the bundled model, and the chat models on this computer (`aiomlc list`)."""
    bundled = BUNDLED_FOLDER.resolve()
    found = models_within(lambda origin: not origin.is_relative_to(bundled))
    names = [model.name for model in found if model.kind != "incomplete" and not _is_encoder(model)]
    for name in (None, *dict.fromkeys(names)):
        register(*_models(name))


def _is_encoder(model: CachedModel) -> bool:
    """Return whether a model has no chats. One that cannot be read is reported when it is used."""
    with suppress(ModelLoadError):
        return read_description(model.origin).config.kind != "decoder"

    return False


def _model_id(name: str | None) -> str:
    # The name of packed weights is the path of a directory.
    return _PREFIX + (name or BUNDLED_NAME).lstrip("/")


@cache
def _models(name: str | None) -> tuple[LLMModel, AsyncLLMModel]:
    # `llm` registers models again for each look-up, but an engine should stay open.
    return LLMModel(name), AsyncLLMModel(name)


@final
class _Answer:
    """Passes the chunks of an answer to `llm`."""

    def __init__(self, response: llm.Response | llm.AsyncResponse) -> None:
        self._response = response
        self._ids: dict[int, str] = {}  # Of the tool calls, by their index.
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}

    def read(self, chunk: ChatCompletionChunk) -> Iterator[StreamEvent]:
        """Yield the events of a chunk."""
        if chunk.usage is not None:
            self._response.set_usage(
                input=chunk.usage.prompt_tokens, output=chunk.usage.completion_tokens
            )

        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                yield StreamEvent(type="reasoning", chunk=delta.reasoning_content)

            if delta.content:
                yield StreamEvent(type="text", chunk=delta.content)

            for call in delta.tool_calls or ():
                yield from self._read_call(
                    call.index, call.id, call.function.name, call.function.arguments
                )

    def finish(self) -> None:
        """Tell the tool calls.

        Raises:
            IncompleteAnswerError: If a call was cut off at the token limit.
        """
        for index, text in self._arguments.items():
            try:
                arguments = json.loads(text or "{}")
            except ValueError:
                raise IncompleteAnswerError(
                    f"the call of {self._names[index]} was cut off; set a larger max_tokens",
                    text=text,
                ) from None

            call = llm.ToolCall(self._names[index], arguments, self._ids[index])
            self._response.add_tool_call(call)

    def _read_call(
        self, index: int, call_id: str | None, name: str | None, arguments: str | None
    ) -> Iterator[StreamEvent]:
        if call_id is not None:
            self._ids[index] = call_id
            self._names[index] = name or ""
            self._arguments[index] = ""
            yield StreamEvent(type="tool_call_name", chunk=name or "", tool_call_id=call_id)

        if arguments:
            self._arguments[index] += arguments
            call_id = self._ids[index]
            yield StreamEvent(type="tool_call_args", chunk=arguments, tool_call_id=call_id)


def _request_fields(prompt: llm.Prompt) -> dict[str, Any]:
    """Return the fields of a streamed request. Blocks: attachments are read."""
    fields: dict[str, Any] = prompt.options.model_dump(exclude_none=True)
    fields["messages"] = list(_to_messages(prompt.messages))
    fields["stream"] = True
    fields["stream_options"] = {"include_usage": True}
    if isinstance(prompt.schema, dict):
        named = {"name": "answer", "schema": prompt.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": named}

    if prompt.tools:
        fields["tools"] = [_to_tool(tool) for tool in prompt.tools]

    return fields


def _to_tool(tool: llm.Tool | llm.ServerSideTool) -> dict[str, Any]:
    if not isinstance(tool, llm.Tool):
        raise BadRequestError(f"tools: must be functions, got {tool!r}", param="tools")

    function = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.input_schema,
        "strict": True,
    }
    return {"type": "function", "function": function}


def _to_messages(messages: list[Message]) -> Iterator[dict[str, Any]]:
    system: str | None = None  # Conversations repeat it in each turn.
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        for part in results:
            text = part.output if part.exception is None else f"Error: {part.exception}"
            yield {"role": "tool", "tool_call_id": part.tool_call_id or "", "content": text}

        others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
        fields = _to_fields(message.role, others) if others else {}
        if message.role == "system":
            if fields.get("content") == system:
                continue

            system = fields.get("content")

        if fields:
            yield fields


def _to_fields(role: str, parts: list[Part]) -> dict[str, Any]:
    for part in parts:
        if not isinstance(part, (TextPart, ReasoningPart, ToolCallPart, AttachmentPart)):
            raise BadRequestError(
                f"messages: a {type(part).__name__} is not supported; only text and images are",
                param="messages",
            )

    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    images = [_to_image(part) for part in parts if isinstance(part, AttachmentPart)]
    content = [*images, {"type": "text", "text": text}] if images else text
    fields: dict[str, Any] = {"role": role, "content": content}
    if reasoning := "".join(part.text for part in parts if isinstance(part, ReasoningPart)):
        fields["reasoning_content"] = reasoning

    if calls := [_to_call(part) for part in parts if isinstance(part, ToolCallPart)]:
        fields["tool_calls"] = calls

    return fields


def _to_image(part: AttachmentPart) -> dict[str, Any]:
    """Return the part of a message for an attachment, whose file or URL is read."""
    attachment = part.attachment
    data = None if attachment is None else attachment.content_bytes()  # type: ignore[no-untyped-call]
    if not data:
        raise BadRequestError("messages: an attachment is empty", param="messages")

    return {"type": "image_url", "image_url": {"url": data}}


def _to_call(part: ToolCallPart) -> dict[str, Any]:
    function = {"name": part.name, "arguments": json.dumps(part.arguments)}
    return {"type": "function", "id": part.tool_call_id or "", "function": function}
