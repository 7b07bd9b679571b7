"""Interrupt an engine at random moments; print what went wrong.

    python -m tests.e2e.interrupts asyncio|trio|blocking ROUNDS SEED

Each round works with an engine until a timer sends SIGINT. The caller must get one plain
KeyboardInterrupt, and nothing may be left: no thread, no pinned prefix, no running request.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the program of a user.
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn

import trio

from aiomlc import AsyncMLCEngine, MLCEngine

STORY: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me a story."}]}
SYSTEM = [{"role": "system", "content": "You are a fox called Rosa."}]
_LONGEST_DELAY = 0.3  # Seconds; a round opens an engine and sends several requests in this time.
_PATIENCE = 60.0  # Seconds until a round counts as stuck.


async def use_engine(rng: Random) -> NoReturn:
    """Open engines and send requests, for ever."""
    while True:
        async with AsyncMLCEngine() as engine:
            for _ in range(rng.choice((0, 3, 1000))):
                with await engine.pin_prefix(SYSTEM):
                    await engine.chat.completions.create(**STORY, max_tokens=3)

                async for chunk in engine.chat.completions.create(**STORY, stream=True):
                    if rng.random() < 0.05 and chunk.choices:
                        break


def use_asyncio(rng: Random) -> None:
    asyncio.run(use_engine(rng))


def use_trio(rng: Random) -> None:
    trio.run(use_engine, rng)


def use_blocking(rng: Random) -> None:
    """Open engines and send requests, for ever."""
    while True:
        with MLCEngine() as engine:
            try:
                for _ in range(rng.choice((0, 3, 1000))):
                    _send_blocking_requests(engine, rng)
            except KeyboardInterrupt:
                _check_released(engine)
                raise


def _send_blocking_requests(engine: MLCEngine, rng: Random) -> None:
    prefix = None
    try:
        prefix = engine.pin_prefix(SYSTEM)
        engine.metrics()
        engine.chat.completions.create(**STORY, max_tokens=3)
        for chunk in engine.chat.completions.create(**STORY, stream=True):
            if rng.random() < 0.05 and chunk.choices:
                break
    finally:
        if prefix is not None:
            prefix.release()


def _check_released(engine: MLCEngine) -> None:
    def is_released() -> bool:
        statistics = engine.statistics()
        return statistics.num_pinned == statistics.num_running == statistics.num_waiting == 0

    if not _becomes_true(is_released):
        raise AssertionError(f"not released: {engine.statistics()}")


def _becomes_true(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            return False

        time.sleep(0.001)

    return True


def live_threads() -> set[str]:
    """Return the names of the threads, without the idle ones that trio keeps for later use."""
    threads = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
    return {name for name in threads if "Trio" not in name}


def run_round(use: Callable[[Random], None], rng: Random) -> str:
    """Interrupt `use` once; return what went wrong, or an empty string."""
    threads = live_threads()
    timer = threading.Timer(rng.random() * _LONGEST_DELAY, os.kill, (os.getpid(), signal.SIGINT))
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)
    caught: BaseException | None = None
    try:
        timer.start()
        use(rng)
    except BaseException as error:  # noqa: BLE001 - judged below.
        caught = error

    timer.join()
    problem = "" if type(caught) is KeyboardInterrupt else f"raised {caught!r}"
    if not _becomes_true(lambda: live_threads() <= threads):
        problem += f" left {live_threads() - threads}"

    faulthandler.cancel_dump_traceback_later()
    return problem


def main() -> None:
    """Run the rounds of one form, and print its problems."""
    form, num_rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    use = {"asyncio": use_asyncio, "trio": use_trio, "blocking": use_blocking}[form]
    rng = Random(seed)
    for number in range(num_rounds):
        problem = run_round(use, rng)
        if problem:
            sys.stdout.write(f"round {number}: {problem}\n")


if __name__ == "__main__":
    main()
