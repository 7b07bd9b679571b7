"""End an engine while its native threads wait for the GIL in a slow tokenizer.

python -m tests.e2e.slow_forced_text asyncio|trio terminate|leave|drop|exit
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
from anyio import create_task_group
from anyio.abc import TaskGroup

from aiomlc import AsyncMLCEngine, EngineClosedError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.e2e.waiting import wait_until

ROUNDS = 8
_calls: list[str] = []
_is_exiting = threading.Event()
_encode_within = Tokenizer.encode_within


def encode_slowly(self: Tokenizer, text: str) -> list[int]:
    """Wait for the GIL in a native thread."""
    _calls.append(text)
    time.sleep(0.02)
    return _encode_within(self, text)


def constant(name: str) -> dict[str, Any]:
    """Return the fields of a request whose answer is forced, and takes many tokens."""
    schema = {"const": f"{name} " + " ".join(map(str, range(5000)))}
    return {
        "messages": [{"role": "user", "content": "Count."}],
        "response_format": {"type": "json_object", "schema": schema},
    }


async def ask(engine: AsyncMLCEngine, name: str) -> None:
    """Send a request that the engine's end may end."""
    with suppress(EngineClosedError):
        await engine.chat.completions.create(**constant(name), max_tokens=2000)


async def start(engine: AsyncMLCEngine, tasks: TaskGroup, name: str) -> None:
    """Start requests, and return while text of them is tokenized."""
    before = len(_calls)
    for i in range(3):
        tasks.start_soon(ask, engine, f"{name} {i}")
    await wait_until(lambda: len(_calls) >= before + 4)


async def main(how: str) -> None:
    """End engines in one of several ways; the last one with the interpreter, in another thread."""
    for number in range(ROUNDS):
        async with create_task_group() as tasks:
            if how == "leave":
                async with AsyncMLCEngine() as engine:
                    await start(engine, tasks, str(number))
            else:
                engine = AsyncMLCEngine()
                await start(engine, tasks, str(number))
                if how == "exit":
                    sys.stdout.write("ended exit\n")
                    _is_exiting.set()
                elif how == "terminate":
                    engine.terminate()
                else:
                    tasks.cancel_scope.cancel()
                    del engine
        if how == "exit":
            return
    sys.stdout.write(f"ended {how}\n")


def run(backend: str, how: str) -> None:
    """Run `main`."""
    anyio.run(main, how, backend=backend)


if __name__ == "__main__":
    Tokenizer.encode_within = encode_slowly  # type: ignore[method-assign]
    if sys.argv[2] != "exit":
        run(sys.argv[1], sys.argv[2])
    else:
        thread = threading.Thread(  # noqa: TID251 - the program of a user.
            target=run, args=sys.argv[1:], daemon=True
        )
        thread.start()
        _is_exiting.wait()
