"""Combinations of request fields with the bundled model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine

PROMPT = "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
USER = {"role": "user", "content": "What is 12 plus 30?"}


def tool(name: str) -> dict[str, Any]:
    properties = {"city": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("get_weather"), tool("get_time")]


@pytest.mark.parametrize(
    ("stop", "is_matched"),
    [(None, False), ("42", True), ("2", True), ("never", False), (["plus", " 4"], True)],
)
async def test_logprobs_agree_with_each_other_for_any_stop_string(
    stop: Any,  # noqa: ANN401
    *,
    is_matched: bool,
) -> None:
    options: dict[str, Any] = {"temperature": 0, "stop": stop, "max_tokens": 12}
    async with AsyncMLCEngine() as engine:
        complete = engine.completions.create
        echoed = await complete(prompt=PROMPT, logprobs=2, echo=True, n=2, **options)
        plain = await complete(prompt=PROMPT, **options)
        stream = await complete(prompt=PROMPT, logprobs=2, stream=True, **options)
        chunks = [chunk.choices[0] async for chunk in stream]
        chat = await engine.chat.completions.create(
            messages=[USER], logprobs=True, top_logprobs=2, **options
        )

    for choice in echoed.choices:
        assert choice.text == PROMPT + plain.choices[0].text
        logprobs = choice.logprobs
        assert logprobs is not None
        num_tokens = len(logprobs.tokens)
        assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == num_tokens
        assert len(logprobs.text_offset) == num_tokens
        assert logprobs.text_offset == sorted(logprobs.text_offset)

    assert "".join(chunk.text for chunk in chunks) == plain.choices[0].text
    streamed = [token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.tokens]
    logprobs = echoed.choices[0].logprobs
    assert logprobs is not None
    assert streamed == logprobs.tokens[-len(streamed) :]
    assert chat.usage is not None
    entries = chat.choices[0].logprobs
    assert entries is not None
    assert len(entries.content) == chat.usage.completion_tokens
    ends_with_stop_token = chat.choices[0].finish_reason == "stop" and not is_matched
    assert (entries.content[-1].bytes is None) == ends_with_stop_token
    text = "".join(entry.token for entry in entries.content)
    assert text.startswith(chat.choices[0].message.content or "")


async def test_best_of_with_echo_returns_prompt_and_logprobs() -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 6}
    async with AsyncMLCEngine() as engine:
        best = await engine.completions.create(
            prompt=[PROMPT, "Once"],
            n=2,
            best_of=4,
            echo=True,
            logprobs=1,
            prompt_logprobs=0,
            **options,
        )

    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    for choice in best.choices:
        prompt = PROMPT if choice.index < 2 else "Once"
        assert choice.text.startswith(prompt)
        assert choice.prompt_logprobs is not None
        assert choice.logprobs is not None
        token_logprobs = choice.logprobs.token_logprobs
        assert token_logprobs[: len(choice.prompt_logprobs)] == [
            None if entry is None else entry.logprob for entry in choice.prompt_logprobs
        ]


@pytest.mark.parametrize(
    ("tool_choice", "names"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "function": {"name": "get_time"}}, {"get_time"}),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_every_choice_has_one_call_if_a_call_is_required(
    tool_choice: Any,  # noqa: ANN401
    names: set[str],
    *,
    is_streamed: bool,
) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": tool_choice, "n": 3}
    async with AsyncMLCEngine() as engine:
        create = engine.chat.completions.create
        request: dict[str, Any] = {
            "messages": [{"role": "user", "content": "What is the time in Rome?"}],
            "parallel_tool_calls": False,
            "temperature": 1.0,
            "seed": 5,
            "logprobs": True,
        }
        if is_streamed:
            calls: dict[int, list[str]] = {0: ["", ""], 1: ["", ""], 2: ["", ""]}
            async for chunk in await create(stream=True, **request, **options):
                for choice in chunk.choices:
                    for call in choice.delta.tool_calls or ():
                        assert call.index == 0
                        calls[choice.index][0] += call.function.name or ""
                        calls[choice.index][1] += call.function.arguments or ""
        else:
            completion = await create(**request, **options)
            assert {choice.finish_reason for choice in completion.choices} == {"tool_calls"}
            calls = {}
            for choice in completion.choices:
                (call,) = choice.message.tool_calls or []
                calls[choice.index] = [call.function.name, call.function.arguments]

    assert len(calls) == 3
    for name, arguments in calls.values():
        assert name in names
        assert json.loads(arguments).keys() == {"city"}


async def test_final_message_is_continued_in_every_choice_and_in_a_stream() -> None:
    messages = [USER, {"role": "assistant", "content": "12 + 30 ="}]
    options: dict[str, Any] = {
        "messages": messages,
        "continue_final_message": True,
        "temperature": 0,
        "max_tokens": 4,
    }
    async with AsyncMLCEngine() as engine:
        create = engine.chat.completions.create
        completion = await create(n=2, **options)
        stream = await create(stream=True, stream_options={"include_usage": True}, **options)
        chunks = [chunk async for chunk in stream]

    texts = [choice.message.content or "" for choice in completion.choices]
    assert texts[0] == texts[1]
    assert "42" in texts[0]
    contents = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(contents) == texts[0]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices == []
