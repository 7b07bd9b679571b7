"""Tests of the model `mock://echo`, which needs no files."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig, JSONFFIEngine, MLCEngine, SyncMLCEngine

pytestmark = pytest.mark.timeout(20)
ECHO = "mock://echo"
HELLO = [{"role": "user", "content": "Hello"}]
PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


async def test_the_reply_is_the_prompt() -> None:
    async with AsyncMLCEngine(ECHO) as engine:
        chat = await engine.chat.completions.create(messages=HELLO)
        plain = await engine.completions.create(prompt="Höllo", max_tokens=3)

    assert chat.choices[0].message.content == PROMPT
    assert chat.model == ECHO
    assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("Höl", "length")


def test_every_engine_supports_the_echo_model() -> None:
    with MLCEngine(ECHO) as blocking, JSONFFIEngine(ECHO) as json, SyncMLCEngine(ECHO) as steps:
        response = blocking.chat.completions.create(messages=HELLO)
        chunks = json.chat.completions.create(messages=HELLO)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        generated, _ = steps.generate("Hello")

    assert response.choices[0].message.content == text == PROMPT
    assert generated == [["Hello"]]


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_lib": ECHO},
        {"model": "x", "model_lib": ECHO},
        {"engine_config": EngineConfig(model_lib=ECHO)},
    ],
)
def test_the_echo_library_of_mlc_llm_selects_the_echo_model(arguments: dict[str, Any]) -> None:
    with MLCEngine(**arguments) as engine, SyncMLCEngine(**arguments) as steps:
        response = engine.chat.completions.create(messages=HELLO)
        generated, _ = steps.generate("Hello")
        assert (engine.engine_config.model, engine.engine_config.model_lib) == (ECHO, None)

    assert (response.choices[0].message.content, response.model) == (PROMPT, ECHO)
    assert generated == [["Hello"]]
