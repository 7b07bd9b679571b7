"""A chat model of LangChain on an engine of the same process."""

from __future__ import annotations

__all__ = ("ChatAiomlc",)

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, final

from pydantic import BaseModel, ConfigDict, Field

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.engines.mlc_engine import MLCEngine
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.usage import Usage
from aiomlc.errors import BadRequestError
from aiomlc.integrations.frameworks import framework

with framework("langchain_core", "langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.chat_models import (
        BaseChatModel,
        agenerate_from_stream,
        generate_from_stream,
    )
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        convert_to_openai_messages,
    )
    from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
    from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
    from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.runnables import (
        Runnable,
        RunnableLambda,
        RunnableParallel,
        RunnablePassthrough,
    )
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool

_PARAMETERS = ("model", "temperature", "top_p", "max_tokens", "seed", "stop")
_TOOL_CHOICES = ("auto", "none", "required")


@final
class ChatAiomlc(BaseChatModel):
    """A chat model whose requests go to an engine:

        async with AsyncMLCEngine() as engine:
            model = ChatAiomlc(engine=engine, temperature=0)
            answer = await model.ainvoke("What is the capital of Italy?")

    With an `AsyncMLCEngine`, the async methods work, with an `MLCEngine` the blocking ones. Leaving
    a stream early or cancelling a call aborts the request. The engine is not closed.

    Raises:
        BadRequestError: While generating, if a field is invalid or the engine of the other kind.
        AiomlcError: While generating, as `engine.chat.completions.create`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    engine: AsyncMLCEngine | MLCEngine = Field(exclude=True)
    model: str | None = None  #: The model's name in responses and traces; None is the engine's.
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    #: Further fields of each request, such as `logprobs` or `chat_template_kwargs`.
    model_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "aiomlc"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _PARAMETERS}
        return {**self.model_kwargs, **{k: v for k, v in given.items() if v is not None}}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a model that may call tools.

        Args:
            tools: Tools of LangChain, functions, types or OpenAI's tool objects.
            tool_choice: "auto", "none", "required" (also as "any" or True), a tool's name, or
                OpenAI's object.
            strict: Whether calls are constrained to the tools' schemas.
            kwargs: Further fields of each request, such as `parallel_tool_calls`.
        """
        functions = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        choice: dict[str, Any] = {}
        if tool_choice:
            choice["tool_choice"] = _tool_choice(tool_choice)

        return super().bind(tools=functions, **choice, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Literal["json_schema", "function_calling"] = "json_schema",
        strict: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Return a model whose answers are values of a schema, which is enforced token by token.

        Args:
            schema: A class of pydantic, whose instances are returned; or a `TypedDict` or a JSON
                schema, for dicts.
            include_raw: Whether to return a dict of `raw`, `parsed` and `parsing_error`.
            method: Whether the answer is the JSON text, or the arguments of a tool call.
            strict: Has no effect: schemas are always enforced.
            kwargs: Further fields of each request; with "function_calling" none are allowed.

        Raises:
            BadRequestError: If `method` is another one.
        """
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)

        if method != "json_schema":
            raise BadRequestError(
                f"method: must be 'json_schema' or 'function_calling', got {method!r}",
                param="method",
            )

        target: Any = schema
        fields = convert_to_json_schema(target)
        is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
        parser: Any = (
            PydanticOutputParser(pydantic_object=target) if is_model else JsonOutputParser()
        )
        named = {"name": fields.get("title", "answer"), "schema": fields}
        model: Runnable[LanguageModelInput, Any] = super().bind(
            response_format={"type": "json_schema", "json_schema": named},
            ls_structured_output_format={"kwargs": {"method": method}, "schema": schema},
            **kwargs,
        )
        return _with_raw(model, parser) if include_raw else model | parser

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, None, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, None, **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> Iterator[ChatGenerationChunk]:
        engine = self.engine
        if not isinstance(engine, MLCEngine):
            raise BadRequestError(
                "engine: must be an MLCEngine for blocking methods, got an AsyncMLCEngine; call "
                "the async method, such as ainvoke, or give an MLCEngine",
                param="engine",
            )

        with engine.chat.completions.create(**self._fields(messages, stop, kwargs)) as chunks:
            for chunk in chunks:
                generation = _to_generation(chunk)
                if run_manager is not None:
                    run_manager.on_llm_new_token(generation.text, chunk=generation)

                yield generation

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's.
    ) -> AsyncIterator[ChatGenerationChunk]:
        engine = self.engine
        if not isinstance(engine, AsyncMLCEngine):
            raise BadRequestError(
                "engine: must be an AsyncMLCEngine for async methods, got an MLCEngine; call the "
                "blocking method, such as invoke, or give an AsyncMLCEngine",
                param="engine",
            )

        chunks = await engine.chat.completions.create(**self._fields(messages, stop, kwargs))
        try:
            async for chunk in chunks:
                generation = _to_generation(chunk)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(generation.text, chunk=generation)

                yield generation
        finally:
            chunks.close()

    def _fields(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields of a streamed request."""
        fields = {**self._identifying_params, **kwargs}
        if fields.get("n") not in (None, 1):
            raise BadRequestError(
                f"n: must be 1, got {fields['n']!r}; batch and abatch give several answers",
                param="n",
            )

        if stop is not None:
            fields["stop"] = stop

        fields["messages"] = [_to_openai(message) for message in messages]
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
        return fields


def _with_raw(
    model: Runnable[LanguageModelInput, Any], parser: Runnable[Any, Any]
) -> Runnable[LanguageModelInput, Any]:
    """Return a model whose result also has the message, and the error of the parser if it fails."""
    read = RunnablePassthrough.assign(
        parsed=RunnableLambda(_raw) | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    raw: Runnable[LanguageModelInput, Any] = RunnableParallel(raw=model)
    return raw | read.with_fallbacks([failed], exception_key="parsing_error")


def _raw(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the model returned.
    return answer["raw"]


def _tool_choice(choice: str | dict[str, Any] | Literal[True]) -> str | dict[str, Any]:
    if isinstance(choice, dict) or choice in _TOOL_CHOICES:
        return choice

    if choice is True or choice == "any":
        return "required"

    return {"type": "function", "function": {"name": choice}}


def _to_openai(message: BaseMessage) -> dict[str, Any]:
    fields = convert_to_openai_messages(message)
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(message, AIMessage) and reasoning:
        fields["reasoning_content"] = reasoning

    return fields


def _to_generation(chunk: ChatCompletionChunk) -> ChatGenerationChunk:
    if not chunk.choices:
        last = AIMessageChunk(
            content="", id=chunk.id, usage_metadata=_usage(chunk.usage), chunk_position="last"
        )
        return ChatGenerationChunk(message=last)

    choice = chunk.choices[0]
    delta = choice.delta
    info: dict[str, Any] = {}
    if choice.logprobs is not None:
        info["logprobs"] = choice.logprobs.model_dump()

    if choice.finish_reason is not None:
        info |= {
            "finish_reason": choice.finish_reason,
            "model_name": chunk.model,
            "model_provider": "aiomlc",
        }

    reasoning = delta.reasoning_content
    message = AIMessageChunk(
        content=delta.content or "",
        id=chunk.id,
        additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
        tool_call_chunks=_tool_calls(delta.tool_calls or ()),
    )
    return ChatGenerationChunk(message=message, generation_info=info or None)


def _tool_calls(calls: Sequence[Any]) -> list[ToolCallChunk]:
    return [
        tool_call_chunk(
            name=call.function.name, args=call.function.arguments, id=call.id, index=call.index
        )
        for call in calls
    ]


def _usage(usage: Usage | None) -> UsageMetadata | None:
    if usage is None:
        return None

    metadata = UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.prompt_tokens_details.cached_tokens),
    )
    if usage.completion_tokens_details is not None:
        metadata["output_token_details"] = OutputTokenDetails(
            reasoning=usage.completion_tokens_details.reasoning_tokens
        )

    return metadata
