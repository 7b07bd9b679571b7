"""The plugin of `llm`, through its Python API and its command."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.sources.cached_models import CachedModel
from tests.e2e.integrations.asked import CAPITAL, EXTRACT, STORY, WEATHER, Person, ask, get_weather
from tests.e2e.programs import ROOT
from tests.e2e.waiting import wait_until
from tests.model.tiny_encoder import ENCODER_CONFIG
from tests.model.tiny_models import TINY_CONFIGS

llm = pytest.importorskip("llm")
plugin = pytest.importorskip("aiomlc.integrations.llm_plugin")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def blocking() -> Any:  # noqa: ANN401 - llm may be missing.
    """The bundled model for blocking code."""
    model = plugin.LLMModel()
    yield model
    model.engine.terminate()


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # trio's, of what is left.
async def test_async_answers_are_those_of_the_engine() -> None:
    async with AsyncMLCEngine() as engine:
        expected = await ask(engine, CAPITAL)

    model = plugin.AsyncLLMModel()
    try:
        response = model.prompt(CAPITAL, temperature=0)
        text = "".join([part async for part in response])
        usage = await response.usage()
        gc.freeze()  # A full collection blocks the loop for as long as the answer takes.
        left = model.prompt(STORY, min_tokens=1900, max_tokens=1900)
        async for _ in left:
            break

        del left, _
        gc.collect()
        # It may be paused until then, as nobody reads.
        await wait_until(lambda: model.engine.statistics().finished["abort"] == 1)
        assert model.engine.statistics().num_running == 0
    finally:
        gc.unfreeze()
        model.engine.terminate()

    assert text == expected.choices[0].message.content
    assert expected.usage is not None
    assert usage.input == expected.usage.prompt_tokens
    assert usage.output == expected.usage.completion_tokens


def test_an_async_model_opens_an_engine_in_each_event_loop() -> None:
    model = plugin.AsyncLLMModel()

    async def main() -> str:
        return str(await model.prompt(CAPITAL, temperature=0).text())

    texts = {anyio.run(main, backend=backend) for backend in ("asyncio", "trio", "asyncio")}
    assert len(texts) == 1
    assert texts != {""}


def test_a_conversation_has_its_history(blocking: Any) -> None:  # noqa: ANN401
    conversation = blocking.conversation()
    options = {"system": "Be brief.", "temperature": 0}
    first = conversation.prompt("My name is Ann.", **options).text()
    second = conversation.prompt("What is my name?", **options).text()
    expected = blocking.engine.chat.completions.create(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "My name is Ann."},
            {"role": "assistant", "content": first},
            {"role": "user", "content": "What is my name?"},
        ],
        temperature=0,
    )

    assert second == expected.choices[0].message.content


def test_tools_and_schemas(blocking: Any) -> None:  # noqa: ANN401
    cities: list[str] = []
    tools = [get_weather(cities)]
    chain = blocking.chain(WEATHER, tools=tools, options={"temperature": 0})
    (first, last) = chain.responses()
    person = json.loads(blocking.prompt(EXTRACT, schema=Person).text())

    assert last.text()
    assert cities == [call.arguments["city"] for call in first.tool_calls()]
    assert set(person) == {"name", "age"}


def test_encoders_are_no_chat_models_and_paths_have_one_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("encoder", "decoder")]
    for folder, name in zip(folders, ("bert", "llama"), strict=True):
        folder.mkdir()
        config = ENCODER_CONFIG if name == "bert" else TINY_CONFIGS[name]
        (folder / "config.json").write_text(json.dumps(config))
    found = [
        CachedModel(str(folder), "packed", "q0f32", 1, 0.0, folder, folder) for folder in folders
    ]
    monkeypatch.setattr(plugin, "models_within", lambda _: found)

    registered: list[str] = []
    plugin.register_models(lambda *models: registered.extend(m.model_id for m in models), None)

    assert registered == ["aiomlc/pebble"] * 2 + [f"aiomlc{folders[1]}"] * 2


def test_the_command_lists_and_asks_the_bundled_model(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            env={**os.environ, "LLM_USER_PATH": str(tmp_path)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    streamed = run("-m", "aiomlc/pebble", "-o", "temperature", "0", CAPITAL)
    whole = run("-m", "aiomlc/pebble", "-o", "temperature", "0", "--no-stream", CAPITAL)
    assert streamed == whole != ""
    # Also now that its packed weights are in the cache.
    names = run("models", "list")
    assert "aiomlc/pebble" in names
    assert "bundled" not in names
