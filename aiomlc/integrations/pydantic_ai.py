"""A model of pydantic-ai on an engine of the same process."""

from __future__ import annotations

__all__ = ("AiomlcModel",)

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, ClassVar, final

from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.usage import Usage
from aiomlc.config import BUNDLED_NAME
from aiomlc.integrations.frameworks import framework
from aiomlc.validation.arguments import wrong_type

with framework("pydantic_ai", "pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.messages import (
        FinishReason,
        ModelMessage,
        ModelResponse,
        ModelResponsePart,
        ModelResponseStreamEvent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
    )
    from pydantic_ai.models import (
        Model,
        ModelRequestParameters,
        StreamedResponse,
        check_allow_model_requests,
    )
    from pydantic_ai.profiles import ModelProfile, ModelProfileSpec, merge_profile
    from pydantic_ai.settings import ModelSettingName, ModelSettings
    from pydantic_ai.usage import RequestUsage

    from aiomlc.integrations.pydantic_ai_request import request_fields

_PROVIDER = "aiomlc"
_PROFILE = ModelProfile(
    supports_json_schema_output=True,
    supports_json_object_output=True,
    default_structured_output_mode="native",  # Schemas are enforced, whatever tools a model knows.
    supports_image_input=True,  # The engine refuses images that its model does not read.
    supports_document_input=False,
    supports_audio_file_input=False,
    supports_video_input=False,
)
_FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
}


@final
class AiomlcModel(Model[None]):
    """A model whose requests go to an engine:

        async with AsyncMLCEngine() as engine:
            agent = Agent(AiomlcModel(engine))
            result = await agent.run("What is the capital of Italy?")

    Output types are enforced token by token, and so are the schemas of tools without
    `strict=False`. Leaving a stream early or cancelling a run aborts the request. The engine is not
    closed with the model. Errors are those of `engine.chat.completions.create`.

    Args:
        engine: What answers.
        model_name: The name in responses and traces; None is that of the engine's model.
        settings: The defaults of all requests.
        profile: Changes to the profile of the model, such as the default way of structured output.

    Raises:
        BadRequestError: If `engine` is not an `AsyncMLCEngine`.
    """

    unsupported_settings: ClassVar[frozenset[ModelSettingName]] = frozenset(
        {"extra_headers", "max_retries", "service_tier"}
    )

    def __init__(
        self,
        engine: AsyncMLCEngine,
        *,
        model_name: str | None = None,
        settings: ModelSettings | None = None,
        profile: ModelProfileSpec | None = None,
    ) -> None:
        own = profile if callable(profile) else merge_profile(_PROFILE, profile)
        super().__init__(settings=settings, profile=own)
        if not isinstance(engine, AsyncMLCEngine):
            raise wrong_type("engine", engine, "an AsyncMLCEngine")

        self._engine = engine
        name = engine.engine_config.model
        self._model_name = model_name or (BUNDLED_NAME if name is None else PurePath(name).name)

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self._model_name

    @property
    def system(self) -> str:
        """The provider's name in traces."""
        return _PROVIDER

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the response of the model.

        Raises:
            AiomlcError: As `engine.chat.completions.create`.
        """
        fields, _ = self._fields(messages, model_settings, model_request_parameters)
        completion: ChatCompletion = await self._engine.chat.completions.create(**fields)
        choice = completion.choices[0]
        return ModelResponse(
            parts=_to_parts(completion),
            usage=_usage(completion.usage),
            model_name=self._model_name,
            timestamp=datetime.fromtimestamp(completion.created, UTC),
            provider_name=_PROVIDER,
            provider_response_id=completion.id,
            finish_reason=_FINISH_REASONS.get(choice.finish_reason),
        )

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Return the number of tokens of a prompt, without generating.

        Raises:
            AiomlcError: As `engine.chat.completions.create`.
        """
        fields, _ = self._fields(messages, model_settings, model_request_parameters)
        request = await parse_off_loop(parse_chat_request, fields)
        return RequestUsage(input_tokens=len(await self._engine.chat.completions.encode(request)))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Return the scope of a streamed response, which aborts the request when it is left.

        Raises:
            AiomlcError: As `engine.chat.completions.create`.
        """
        fields, parameters = self._fields(messages, model_settings, model_request_parameters)
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._engine.chat.completions.create(**fields) as chunks:
            yield _StreamedResponse(
                model_request_parameters=parameters,
                chunks=chunks,
                name=self._model_name,
                started=datetime.now(UTC),
            )

    def _fields(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> tuple[dict[str, Any], ModelRequestParameters]:
        check_allow_model_requests()
        prepared, parameters = self.prepare_request(settings, parameters)
        parts = self._get_instruction_parts(messages, parameters) or ()
        instructions = [part.content for part in parts]
        return request_fields(messages, instructions, prepared or {}, parameters), parameters


@dataclass
class _StreamedResponse(StreamedResponse):
    """The events of a stream of chunks."""

    chunks: ChatCompletionStream
    name: str
    started: datetime

    async def close_stream(self) -> None:
        await self.chunks.aclose()

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        async for chunk in self.chunks:
            self.provider_response_id = chunk.id
            if chunk.usage is not None:
                self._usage = _usage(chunk.usage)

            for event in self._to_events(chunk):
                yield event

    def _to_events(self, chunk: ChatCompletionChunk) -> Iterator[ModelResponseStreamEvent]:
        for choice in chunk.choices:
            parts, delta = self._parts_manager, choice.delta
            if choice.finish_reason is not None:
                self.finish_reason = _FINISH_REASONS.get(choice.finish_reason)

            if delta.reasoning_content:
                yield from parts.handle_thinking_delta(
                    vendor_part_id="reasoning", content=delta.reasoning_content
                )

            if delta.content:
                yield from parts.handle_text_delta(vendor_part_id="content", content=delta.content)

            for call in delta.tool_calls or ():
                yield from parts.handle_tool_call_delta_events(
                    vendor_part_id=call.index,
                    tool_name=call.function.name,
                    args=call.function.arguments,
                    tool_call_id=call.id,
                )

    @property
    def model_name(self) -> str:
        return self.name

    @property
    def provider_name(self) -> str | None:
        return _PROVIDER

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self.started


def _to_parts(completion: ChatCompletion) -> list[ModelResponsePart]:
    message = completion.choices[0].message
    parts: list[ModelResponsePart] = []
    if message.reasoning_content:
        parts.append(ThinkingPart(message.reasoning_content))

    if message.content:
        parts.append(TextPart(message.content))

    calls = message.tool_calls or ()
    parts += [ToolCallPart(call.function.name, call.function.arguments, call.id) for call in calls]
    return parts


def _usage(usage: Usage | None) -> RequestUsage:
    if usage is None:
        return RequestUsage()

    details = usage.completion_tokens_details
    return RequestUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_tokens=usage.prompt_tokens_details.cached_tokens,
        details={} if details is None else {"reasoning_tokens": details.reasoning_tokens},
    )
