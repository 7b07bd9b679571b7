"""Types of the public API, checked by mypy and pyright and never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Literal, assert_type

import numpy as np
from anyio.abc import ObjectReceiveStream
from numpy.typing import NDArray
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from aiomlc import (
    AsyncMLCEngine,
    CachedModel,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionStream,
    ChatMessageParam,
    Completion,
    CompletionStream,
    Conversation,
    Delta,
    EngineConfig,
    EngineEvent,
    GenerationConfig,
    InsufficientMemoryError,
    JSONFFIEngine,
    LoadProgress,
    MemoryPlan,
    MLCEngine,
    ModelAccessError,
    ParsedChatCompletion,
    SyncMLCEngine,
    TokenStream,
    list_models,
    plan_memory,
    pull,
    remove_model,
)
from aiomlc.api.chat.events import ChatEvent, TypedChatEvent

HELLO = [{"role": "user", "content": "Hello"}]


async def models(name: str) -> None:
    def show(progress: LoadProgress) -> None:
        assert_type(progress.done_bytes, int | None)

    try:
        assert_type(await pull(name, on_progress=show), Path)
    except ModelAccessError as error:
        assert_type((error.repository, error.status), tuple[str | None, int | None])

    assert_type(await list_models(), list[CachedModel])
    assert_type((await remove_model(name)).removed, tuple[CachedModel, ...])


class Person(BaseModel):
    name: str
    mood: Literal["happy", "sad"]


def typed_messages(text: str) -> list[ChatMessageParam]:
    messages: list[ChatMessageParam] = [{"role": "system", "content": "Be brief."}]
    messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
    return messages


def favor_last_token(token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
    logits[token_ids[-1]] += 1


def plan() -> MemoryPlan:
    try:
        return plan_memory(mode="server", engine_config=EngineConfig(max_num_sequence=2))
    except InsufficientMemoryError as error:
        return assert_type(error.plan, MemoryPlan)


async def asynchronous(stream: bool) -> None:
    async with AsyncMLCEngine(engine_config=EngineConfig(max_num_sequence=2)) as engine:
        assert_type(engine, AsyncMLCEngine)
        assert_type(engine.openai_client(), AsyncOpenAI)
        assert_type(engine.conv_template, Conversation | None)
        assert_type(engine.memory_plan, MemoryPlan | None)
        create = engine.chat.completions.create
        assert_type(await create(messages=HELLO), ChatCompletion)
        assert_type(await create(messages=typed_messages("Hi")), ChatCompletion)
        assert_type(await create(messages=HELLO, stream=False), ChatCompletion)
        assert_type(await create(messages=HELLO, stream=True), ChatCompletionStream)
        assert_type(
            await create(messages=HELLO, stream=stream), ChatCompletion | ChatCompletionStream
        )
        async for chunk in await create(messages=HELLO, stream=True):
            assert_type(chunk, ChatCompletionChunk)
            assert_type(chunk.choices[0].delta.content, str | None)

        parsed = await engine.chat.completions.parse(messages=HELLO, response_format=Person)
        assert_type(parsed.choices[0].message.parsed, Person | None)
        async with engine.chat.completions.stream(messages=HELLO) as events:
            async for event in events:
                assert_type(event, ChatEvent)

            assert_type(await events.get_final_completion(), ChatCompletion)

        typed = engine.chat.completions.stream(messages=HELLO, response_format=Person)
        async with typed as values:
            async for value in values:
                assert_type(value, TypedChatEvent[Person])
                if value.type == "content.done":
                    assert_type(value.parsed, Person | None)

            assert_type(await values.get_final_completion(), ParsedChatCompletion[Person])

        assert_type(await engine.completions.create(prompt="a"), Completion)
        assert_type(await engine.completions.create(prompt="a", stream=True), CompletionStream)
        await create(messages=HELLO, prompt_logprobs=1, logits_processors=[favor_last_token])
        stream_of_chunks: AsyncIterator[ChatCompletionChunk] = await create(
            messages=HELLO, stream=True
        )
        await anext(stream_of_chunks)


async def streams(engine: AsyncMLCEngine) -> None:
    create = engine.chat.completions.create
    async for chunk in create(messages=HELLO, stream=True):
        assert_type(chunk, ChatCompletionChunk)

    async with create(messages=HELLO, stream=True) as entered:
        assert_type(entered, ChatCompletionStream)
        assert_type(await entered.receive(), ChatCompletionChunk)

    async for delta in engine.generate("a"):
        assert_type(delta, Delta)

    assert_type(await engine.generate("a"), TokenStream)
    async for response_event in engine.responses.create(input="a", stream=True):
        assert_type(response_event.sequence_number, int)

    async for engine_event in engine.events():
        assert_type(engine_event, EngineEvent)

    receiver: ObjectReceiveStream[ChatCompletionChunk] = entered
    await receiver.receive()


def blocking() -> None:
    with MLCEngine() as engine:
        assert_type(engine.openai_client(), OpenAI)
        assert_type(engine.chat.completions.create(messages=HELLO), ChatCompletion)
        chunks: Iterator[ChatCompletionChunk] = engine.chat.completions.create(
            messages=HELLO, stream=True
        )
        assert_type(next(chunks), ChatCompletionChunk)
        parsed = engine.chat.completions.parse(messages=HELLO, response_format=Person)
        assert_type(parsed.choices[0].message.parsed, Person | None)
        assert_type(engine.completions.create(prompt=[1, 2]), Completion)
        json_format = {"type": "json_object"}
        with engine.chat.completions.stream(messages=HELLO, response_format=json_format) as events:
            assert_type(next(events), ChatEvent)
            assert_type(events.get_final_completion(), ChatCompletion)

        with engine.chat.completions.stream(messages=HELLO, response_format=Person) as values:
            assert_type(next(values), TypedChatEvent[Person])
            assert_type(values.get_final_completion(), ParsedChatCompletion[Person])

    with SyncMLCEngine() as steps:
        texts, logprobs = steps.generate("a", GenerationConfig(n=2))
        assert_type(texts, list[list[str]])
        assert_type(logprobs, list[list[list[str]] | None])
        assert_type(steps.step(), bool)

    with JSONFFIEngine() as json_engine:
        for text in json_engine.chat_completion("{}"):
            assert_type(text, str)
