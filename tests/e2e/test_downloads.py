"""Models of the hub, opened by their names; programs that are interrupted and killed meanwhile.

`AIOMLC_DOWNLOAD_KILLS=20 python -m pytest tests/e2e/test_downloads.py` takes minutes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import anyio.to_thread
import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    LoadProgress,
    ModelNotFoundError,
    SyncMLCEngine,
    list_models,
    pull,
    remove_model,
)
from tests.e2e.programs import ROOT, run_program
from tests.e2e.terminal import chat_at_terminal
from tests.fake_hub import FakeHub, hub_in_use

NUM_KILLS = int(os.environ.get("AIOMLC_DOWNLOAD_KILLS", "3"))
NAME = "ada/pebble"
QUESTION = "What is 12 plus 30?"
ANSWER = "12 + 30 = 42."
CHAT = ("-m", "aiomlc", "chat", "--model", f"HF://{NAME}", "-p", QUESTION, "--temperature", "0")
LARGE = "params_shard|tokenizer.json"
_LONGEST_DELAY = 6.0  # Seconds until a program is killed; it takes about as long.


@pytest.fixture
def hub(tmp_path: Path, bundled_model: Path) -> Iterator[FakeHub]:
    """Run a hub that has the bundled model."""
    with hub_in_use(tmp_path) as fake:
        fake.add(NAME, bundled_model)
        yield fake


async def test_an_engine_downloads_its_model_and_then_needs_no_hub(hub: FakeHub) -> None:
    progress: list[LoadProgress] = []
    engine = AsyncMLCEngine(NAME, on_progress=progress.append)
    with pytest.raises(ModelNotFoundError, match=f"aiomlc pull {NAME}"):
        _ = engine.tokenizer

    async with engine:
        answer = await engine.chat.completions.create(
            messages=[{"role": "user", "content": QUESTION}], temperature=0
        )

    assert answer.choices[0].message.content == ANSWER
    assert answer.model == NAME
    downloads = [done for done in progress if done.stage == "download"]
    assert (downloads[-1].fraction, downloads[-1].done_bytes) == (1.0, downloads[-1].total_bytes)

    hub.misbehave(status=500)
    again = AsyncMLCEngine(f"HF://{NAME}")
    assert again.tokenizer.encode("Hi") == engine.tokenizer.encode("Hi")
    async with again:
        assert again.model_config_dicts[0]["model_type"] == "llama"


async def test_a_model_is_pulled_before_it_is_opened(hub: FakeHub) -> None:
    assert (await pull(NAME) / "mlc-chat-config.json").is_file()

    engine = await anyio.to_thread.run_sync(lambda: SyncMLCEngine(NAME, mode="interactive"))
    assert engine.memory_plan is not None
    assert engine.memory_plan.models[0].name == NAME


def test_a_chat_shows_the_download_in_bars(hub: FakeHub) -> None:
    hub.misbehave(LARGE, block_seconds=0.05)

    with chat_at_terminal("--model", f"HF://{NAME}", columns=120) as terminal:
        shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.banner)
        assert re.search(
            r"downloading params_shard_0\.bin \u2501.* \d\.\d/\d\.\d MB .* MB/s", shown
        )
        assert ANSWER in terminal.ask(QUESTION)
        assert terminal.leave() == 0


@pytest.mark.parametrize("arguments", [CHAT, ("-m", "aiomlc", "pull", NAME)], ids=["chat", "pull"])
def test_ctrl_c_ends_a_download(hub: FakeHub, arguments: tuple[str, ...]) -> None:
    hub.misbehave("params_shard", block_seconds=1000)
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    hub.wait_for("params_shard_0.bin")
    process.send_signal(signal.SIGINT)
    output = process.communicate()

    assert (process.returncode, output) == (130, ("", ""))


def test_an_error_of_the_hub_is_one_line(hub: FakeHub) -> None:
    hub.misbehave("params_shard", status=403, headers={"X-Error-Code": "GatedRepo"})

    result = run_program(CHAT)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"aiomlc: cannot download model '{NAME}': {hub.endpoint}/{NAME} is gated; accept its "
        "conditions on that page, and set HF_TOKEN, or run `hf auth login`\n"
    )


@pytest.mark.timeout(120 + 15 * NUM_KILLS)
@pytest.mark.thorough
def test_a_program_that_was_killed_is_started_again_and_answers(
    hub: FakeHub, bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    hub.misbehave(LARGE, block_seconds=0.03)
    rng = Random(20261122)
    for _ in range(NUM_KILLS):
        process = subprocess.Popen(
            [sys.executable, *CHAT], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            process.wait(rng.uniform(0, _LONGEST_DELAY))
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() in {0, -signal.SIGKILL}
        for path in (tmp_path / "hf").glob("hub/models--*/snapshots/*/*"):
            assert path.read_bytes() == (bundled_model / path.name).read_bytes()

    result = run_program(CHAT)

    assert (result.returncode, result.stdout, result.stderr) == (0, f"{ANSWER}\n", "")


async def test_a_model_that_does_not_exist_cannot_be_pulled() -> None:
    with pytest.raises(ModelNotFoundError, match="no such file or directory"):
        await pull("./none")


async def test_what_is_on_this_computer_is_not_pulled(tmp_path: Path) -> None:
    assert (await pull("pebble") / "mlc-chat-config.json").is_file()
    assert await pull(tmp_path) == tmp_path


async def test_the_packed_weights_of_the_bundled_model_are_removed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    async with AsyncMLCEngine():
        pass

    assert [model.name for model in await list_models()] == ["pebble"]
    assert [model.name for model in (await remove_model("pebble")).removed] == ["pebble"]
    assert await list_models() == []


@pytest.mark.parametrize("function", [pull, remove_model])
async def test_no_model_is_no_path(function: Callable[[Any], Awaitable[object]]) -> None:
    with pytest.raises(BadRequestError, match="model must be a path, got None"):
        await function(None)
