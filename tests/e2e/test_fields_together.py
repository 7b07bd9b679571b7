"""Fields of requests that meet each other, on the bundled model: each keeps what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine

ASKED = "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
USER = {"role": "user", "content": "What is 12 plus 30?"}


def tool(name: str) -> dict[str, Any]:
    properties = {"city": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("get_weather"), tool("get_time")]


@pytest.mark.parametrize(
    ("stop", "is_found"),
    [(None, False), ("42", True), ("2", True), ("never", False), (["plus", " 4"], True)],
)
async def test_the_lists_of_log_probabilities_agree_whatever_ends_the_text(
    stop: Any,  # noqa: ANN401
    *,
    is_found: bool,
) -> None:
    options: dict[str, Any] = {"temperature": 0, "stop": stop, "max_tokens": 12}
    async with AsyncMLCEngine() as engine:
        complete = engine.completions.create
        whole = await complete(prompt=ASKED, logprobs=2, echo=True, n=2, **options)
        plain = await complete(prompt=ASKED, **options)
        stream = await complete(prompt=ASKED, logprobs=2, stream=True, **options)
        pieces = [piece.choices[0] async for piece in stream]
        chat = await engine.chat.completions.create(
            messages=[USER], logprobs=True, top_logprobs=2, **options
        )

    for choice in whole.choices:
        assert choice.text == ASKED + plain.choices[0].text
        told = choice.logprobs
        assert told is not None
        lengths = map(len, (told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset))
        assert len(set(lengths)) == 1
        assert told.text_offset == sorted(told.text_offset)

    assert "".join(piece.text for piece in pieces) == plain.choices[0].text
    streamed = [token for piece in pieces if piece.logprobs for token in piece.logprobs.tokens]
    told = whole.choices[0].logprobs
    assert told is not None
    assert streamed == told.tokens[-len(streamed) :]
    assert chat.usage is not None
    entries = chat.choices[0].logprobs
    assert entries is not None
    # The token that ends an answer is counted, and no part of it.
    own_end = chat.choices[0].finish_reason == "stop" and not is_found
    assert len(entries.content) == chat.usage.completion_tokens - own_end
    spelt = "".join(entry.token for entry in entries.content)
    assert spelt.startswith(chat.choices[0].message.content or "")


async def test_the_best_of_several_are_told_with_their_prompt() -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 6}
    async with AsyncMLCEngine() as engine:
        best = await engine.completions.create(
            prompt=[ASKED, "Once"],
            n=2,
            best_of=4,
            echo=True,
            logprobs=1,
            prompt_logprobs=0,
            **options,
        )

    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    for choice in best.choices:
        prompt = ASKED if choice.index < 2 else "Once"
        assert choice.text.startswith(prompt)
        assert choice.prompt_logprobs is not None
        assert choice.logprobs is not None
        told = choice.logprobs.token_logprobs
        assert told[: len(choice.prompt_logprobs)] == [
            None if entry is None else entry.logprob for entry in choice.prompt_logprobs
        ]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "function": {"name": "get_time"}}, {"get_time"}),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_every_choice_makes_one_call_where_one_must_be(
    choice: Any,  # noqa: ANN401
    names: set[str],
    *,
    is_streamed: bool,
) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice, "n": 3}
    async with AsyncMLCEngine() as engine:
        create = engine.chat.completions.create
        asked: dict[str, Any] = {
            "messages": [{"role": "user", "content": "What is the time in Rome?"}],
            "parallel_tool_calls": False,
            "temperature": 1.0,
            "seed": 5,
            "logprobs": True,
        }
        if is_streamed:
            calls: dict[int, list[str]] = {0: ["", ""], 1: ["", ""], 2: ["", ""]}
            async for chunk in await create(stream=True, **asked, **options):
                for one in chunk.choices:
                    for call in one.delta.tool_calls or ():
                        assert call.index == 0
                        calls[one.index][0] += call.function.name or ""
                        calls[one.index][1] += call.function.arguments or ""
        else:
            answer = await create(**asked, **options)
            assert {one.finish_reason for one in answer.choices} == {"tool_calls"}
            calls = {}
            for one in answer.choices:
                (made,) = one.message.tool_calls or []
                calls[one.index] = [made.function.name, made.function.arguments]

    assert len(calls) == 3
    for name, arguments in calls.values():
        assert name in names
        assert json.loads(arguments).keys() == {"city"}


async def test_a_message_is_continued_in_every_choice_and_in_a_stream() -> None:
    begun = [USER, {"role": "assistant", "content": "12 + 30 ="}]
    options: dict[str, Any] = {
        "messages": begun,
        "continue_final_message": True,
        "temperature": 0,
        "max_tokens": 4,
    }
    async with AsyncMLCEngine() as engine:
        create = engine.chat.completions.create
        whole = await create(n=2, **options)
        stream = await create(stream=True, stream_options={"include_usage": True}, **options)
        chunks = [chunk async for chunk in stream]

    texts = [choice.message.content or "" for choice in whole.choices]
    assert texts[0] == texts[1]
    assert "42" in texts[0]
    told = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(told) == texts[0]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices == []
