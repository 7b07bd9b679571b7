"""Engines and streams explain themselves to `with` and `for` of the wrong kind."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.testing import FakeCore, fake_loader

HELLO = [{"role": "user", "content": "Hi"}]


def test_with_over_an_async_engine_says_what_to_use() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    expected = r"AsyncMLCEngine .* use `async with`, or `MLCEngine`"
    with pytest.raises(TypeError, match=expected), engine:  # type: ignore[attr-defined]
        pass


async def test_async_with_over_a_blocking_engine_says_what_to_use() -> None:
    with MLCEngine(loader=fake_loader()) as engine:
        expected = r"MLCEngine .* use `with`, or `AsyncMLCEngine`"
        with pytest.raises(TypeError, match=expected):
            async with engine:  # type: ignore[attr-defined]
                pass


async def test_async_for_over_a_blocking_stream_says_what_to_use() -> None:
    with MLCEngine(loader=fake_loader()) as engine, engine.generate("Hello") as stream:
        with pytest.raises(TypeError, match=r"BlockingStream .* use `for`, or `AsyncMLCEngine`"):
            async for _ in stream:  # type: ignore[attr-defined]
                pass

        with pytest.raises(TypeError, match=r"BlockingStream .* use `with`, or `AsyncMLCEngine`"):
            async with stream:  # type: ignore[attr-defined]
                pass


async def test_a_missing_attribute_says_what_to_write() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        async with stream:
            with pytest.raises(AttributeError, match="iterate over the chunks of the stream"):
                stream.choices  # type: ignore[attr-defined]  # noqa: B018

        with pytest.raises(AttributeError, match=r"'AsyncChat' .* use `chat.completions.create`"):
            engine.chat.create  # type: ignore[attr-defined]  # noqa: B018

        with pytest.raises(AttributeError, match=r"has no attribute 'other'$"):
            engine.chat.other  # type: ignore[attr-defined]  # noqa: B018


async def test_what_was_not_awaited_says_so() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        pending: list[tuple[Any, str]] = [
            (engine.chat.completions.create(messages=HELLO), "choices"),
            (engine.chat.completions.parse(messages=HELLO, response_format=int), "choices"),
            (engine.completions.create(prompt="Hi"), "usage"),
            (engine.responses.create(input="Hi"), "output_text"),
            (engine.embeddings.create(input="Hi"), "data"),
        ]
        for response, name in pending:
            with pytest.raises(
                AttributeError, match=rf"{name!r}: .*write `await` before the call$"
            ):
                getattr(response, name)

            response.close()

        stream = engine.chat.completions.create(messages=HELLO, stream=True)
        with pytest.raises(AttributeError, match="iterate over the chunks of the stream"):
            stream.choices  # type: ignore[attr-defined]  # noqa: B018


async def test_a_positional_argument_is_rejected_with_the_keyword_to_write() -> None:
    async_engine = AsyncMLCEngine(loader=fake_loader())
    with MLCEngine(loader=fake_loader()) as blocking_engine:
        for engine in (async_engine, blocking_engine):
            methods: list[tuple[Any, str]] = [
                (engine.chat.completions.create, "messages"),
                (engine.chat.completions.parse, "messages"),
                (engine.chat.completions.stream, "messages"),
                (engine.completions.create, "prompt"),
                (engine.responses.create, "input"),
                (engine.embeddings.create, "input"),
            ]
            for method, name in methods:
                with pytest.raises(TypeError, match=rf"keyword arguments only: write `{name}=...`"):
                    method(HELLO)


async def test_iterating_without_stream_says_what_to_pass() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        pending: Any = engine.chat.completions.create(messages=HELLO)
        with pytest.raises(TypeError, match="pass stream=True"):
            async for _ in pending:
                pass

        with pytest.raises(TypeError, match="pass stream=True"):
            async with pending:
                pass

        pending.close()


def test_a_name_of_older_clients_says_what_to_write() -> None:
    with MLCEngine(loader=fake_loader()) as blocking_engine:
        engines: list[Any] = [AsyncMLCEngine(loader=fake_loader()), blocking_engine]
        for engine in engines:
            with pytest.raises(AttributeError, match=r"'beta': .*write `chat.completions.parse`"):
                engine.beta  # noqa: B018


def test_the_ways_of_other_libraries_are_answered_with_ours() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        untyped: Any = engine
        with pytest.raises(AttributeError, match=r"write `chat.completions.create`"):
            untyped.create_chat_completion(messages=HELLO)

        with pytest.raises(TypeError, match=r"write `engine.chat.completions.create\(messages"):
            untyped.chat(HELLO)

        with pytest.raises(TypeError, match=r"takes a chat: write `messages=\["):
            untyped.chat.completions.create(prompt="Hi")

        with pytest.raises(AttributeError, match="iterate over the chunks of the stream"):
            untyped.generate("Hi").text  # noqa: B018

        answer: Any = engine.chat.completions.create(messages=HELLO)
        with pytest.raises(TypeError, match=r"write `.choices` in place of `\['choices'\]`"):
            answer["choices"]

        assert "\n" not in repr(engine.tokenizer)
        assert repr(engine.tokenizer) == f"<Tokenizer of {engine.tokenizer.vocab_size:,} tokens>"


async def test_the_asynchronous_chat_is_not_a_function() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        untyped: Any = engine
        with pytest.raises(TypeError, match=r"AsyncChat is not a function: write `engine.chat."):
            untyped.chat(HELLO)

        with pytest.raises(TypeError, match=r"takes a chat: write `messages=\["):
            await untyped.chat.completions.create(prompt="Hi")
