"""Send requests that are too large, or nearly so, and report what they cost the others.

    python -m benchmarks.large_requests

For each request: the seconds until its answer or error, the longest delay of another task of the
event loop, and the memory that the process took in addition to the request itself.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from aiomlc import AiomlcError, AsyncMLCEngine

_PAGE = 4096
_POLL_SECONDS = 0.001


def _chat(content: object = "Hi", **fields: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1, **fields}


def _tools(number: int, description: str = "") -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return [
        {
            "type": "function",
            "function": {"name": f"f{i}", "description": description, "parameters": parameters},
        }
        for i in range(number)
    ]


def _schema(number: int) -> dict[str, Any]:
    properties = {f"k{i}": {"type": "integer"} for i in range(number)}
    schema = {"type": "object", "properties": properties}
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def _numbered(number: int) -> dict[str, str]:
    return {str(i): "a" for i in range(number)}


_PART = {"type": "text", "text": "a"}
_CASES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "10 MB of digits": lambda: _chat("1234567890" * 1_000_000),
    "10 MB of spaces": lambda: _chat(" " * 10_000_000),
    "10 MB of words": lambda: _chat("hello world " * 833_333),
    "10 MB of emoji": lambda: _chat("\U0001f600" * 2_500_000),
    "1 MB of words": lambda: _chat("hello world " * 83_333),
    "10 MB in a completion": lambda: {"prompt": "hello world " * 833_333},
    "10 MB in a tool's description": lambda: _chat(tools=_tools(1, "x" * 10_000_000)),
    "100,000 messages": lambda: {"messages": _chat()["messages"] * 100_000},
    "10,000 messages": lambda: {"messages": _chat()["messages"] * 10_000},
    "1,000,000 content parts": lambda: _chat([_PART] * 1_000_000),
    "10,000 content parts": lambda: _chat([_PART] * 10_000),
    "100,000 stop tokens, n=128": lambda: _chat(stop_token_ids=list(range(100_000)), n=128),
    "4,000 stop tokens, n=128": lambda: _chat(stop_token_ids=list(range(9, 4009)), n=128),
    "10,000 stop strings, n=128": lambda: _chat(stop=list(_numbered(10_000)), n=128),
    "256 stop strings, n=128": lambda: _chat(stop=list(_numbered(256)), n=128),
    "a stop string of 10 MB": lambda: _chat(stop="x" * 10_000_000),
    "1,000,000 biases": lambda: _chat(logit_bias=dict.fromkeys(range(1_000_000), 1)),
    "4,000 biases, n=32": lambda: _chat(logit_bias=dict.fromkeys(range(4000), 1), n=32),
    "1,000,000 entries of metadata": lambda: _chat(metadata=_numbered(1_000_000)),
    "1,000,000 template variables": lambda: _chat(chat_template_kwargs=_numbered(1_000_000)),
    "a schema of 200,000 properties": lambda: _chat(response_format=_schema(200_000)),
    "10,000 tools": lambda: _chat(tools=_tools(10_000), tool_choice="required"),
    "1,000 tools": lambda: _chat(tools=_tools(1000), tool_choice="required"),
    "100,000 prompts": lambda: {"prompt": ["a"] * 100_000, "max_tokens": 1},
    "1,000 prompts": lambda: {"prompt": ["a"] * 1000, "max_tokens": 1},
    "2,000,000 prompt tokens": lambda: {"prompt": [5] * 2_000_000},
}


class _Watch:
    """Measures the delay of a task and the memory of the process until `stop` is called."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.memory = self._start = _resident_bytes()
        self._is_stopped = False

    def stop(self) -> None:
        """End both measurements."""
        self._is_stopped = True

    @property
    def growth(self) -> int:
        """The bytes that the process took in addition."""
        return self.memory - self._start

    async def watch_delay(self) -> None:
        """Measure how much later than asked this task wakes up."""
        while not self._is_stopped:
            start = time.perf_counter()
            await anyio.sleep(_POLL_SECONDS)
            self.delay = max(self.delay, time.perf_counter() - start - _POLL_SECONDS)

    def watch_memory(self) -> None:
        """Measure the memory, in a thread."""
        while not self._is_stopped:
            self.memory = max(self.memory, _resident_bytes())
            time.sleep(_POLL_SECONDS)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


async def _measure(engine: AsyncMLCEngine, name: str) -> None:
    fields = _CASES[name]()
    gc.collect()
    watch = _Watch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.watch_delay)
        tasks.start_soon(to_thread.run_sync, watch.watch_memory)
        await anyio.sleep(0.05)
        watch.delay = 0.0
        start = time.perf_counter()
        outcome = await _outcome(engine, fields)
        seconds = time.perf_counter() - start
        await anyio.sleep(2 * _POLL_SECONDS)
        watch.stop()

    sys.stdout.write(
        f"{name:32} {seconds:6.2f} s {watch.delay * 1e3:6.0f} ms {watch.growth / 1e6:6.0f} MB  "
        f"{outcome}\n"
    )


async def _outcome(engine: AsyncMLCEngine, fields: dict[str, Any]) -> str:
    completions = engine.completions if "prompt" in fields else engine.chat.completions
    try:
        await completions.create(**fields)
    except AiomlcError as error:
        return f"{type(error).__name__}: {str(error)[:60]}"

    return "answered"


async def _main(names: list[str]) -> None:
    async with AsyncMLCEngine() as engine:
        await engine.chat.completions.create(**_chat())
        for name in names or _CASES:
            await _measure(engine, name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="the requests; all by default")
    anyio.run(partial(_main, parser.parse_args().names))
