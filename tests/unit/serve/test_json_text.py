"""The JSON of answers with long lists equals pydantic's, and is made in short turns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from aiomlc import AsyncMLCEngine
from aiomlc.serve.http.json_text import is_long, to_json, to_json_in_turns

PROMPT = "fox " * 150
FIELDS: list[dict[str, Any]] = [
    {},
    {"logprobs": 3},
    {"prompt_logprobs": 2},
    {"echo": True, "logprobs": 2},
    {"echo": True, "logprobs": 0, "prompt_logprobs": 1, "n": 2},
]


async def _check(answers: list[Any]) -> bool:
    """Compare the texts of answers or chunks; return whether one of them is long."""
    for answer in answers:
        assert isinstance(answer, BaseModel)
        has_long = is_long(answer)
        texts = [to_json(answer), await to_json_in_turns(answer)]
        expected = json.loads(answer.model_dump_json())
        assert [json.loads(text) for text in texts] == [expected] * 2
        # Read by now: the entries are objects.
        assert json.loads(to_json(answer)) == expected
        assert is_long(answer) == has_long

    return any(map(is_long, answers))


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: "+".join(fields) or "plain")
async def test_completions(fields: dict[str, Any]) -> None:
    async with AsyncMLCEngine("mock://echo") as engine:
        answer = await engine.completions.create(prompt=PROMPT, max_tokens=3, **fields)
        stream = engine.completions.create(prompt=PROMPT, max_tokens=3, stream=True, **fields)
        chunks = [chunk async for chunk in stream]

    is_long = "echo" in fields or "prompt_logprobs" in fields
    assert await _check([answer]) == is_long
    assert await _check(chunks) == is_long


@pytest.mark.parametrize("num_top", [None, 0, 4])
@pytest.mark.parametrize("max_tokens", [3, 200])
async def test_chats(num_top: int | None, max_tokens: int) -> None:
    options: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "n": 2}
    messages = [{"role": "user", "content": PROMPT}]
    async with AsyncMLCEngine("mock://echo") as engine:
        answer = await engine.chat.completions.create(
            messages=messages, max_tokens=max_tokens, prompt_logprobs=num_top, **options
        )

    assert await _check([answer]) == (num_top is not None or max_tokens == 200)


async def test_other_values() -> None:
    assert to_json({"a": [1, None]}) == b'{"a":[1,null]}'
