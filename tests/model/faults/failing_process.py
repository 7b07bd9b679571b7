"""`python -m tests.model.faults.failing_process ROOT SCENARIO SAMPLES`: fail the k-th call.

Each outcome is a line of JSON on stdout. The line before it names the call, so that the last line
identifies the call that crashed or hung. SAMPLES is the number of calls of each kind; 0 is all.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import logging
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from aiomlc import AiomlcError, AsyncMLCEngine, EngineConfig, MLCEngine
from aiomlc.batch import run_batch
from aiomlc.cache.files import is_transient
from aiomlc.serve import ServerOptions, create_app
from aiomlc.tools.convert import convert_weights
from tests.unit.serve.asgi import http_client

#: The kinds of `failing_calls.c`, in its order, with what the system would say.
KINDS = {
    "open": errno.EMFILE,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "sync": errno.EIO,
    "rename": errno.ENOSPC,
    "mkdir": errno.ENOSPC,
    "lock": errno.ENOLCK,
    "map": errno.ENOMEM,
    "allocate": errno.ENOMEM,
    "thread": errno.EAGAIN,
}
CONFIG = EngineConfig(num_threads=2, max_num_sequence=2, max_total_sequence_length=256)
_QUESTION = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}


@dataclass(frozen=True)
class Scenario:
    """What is run again and again, in a directory with a model and a cache."""

    run: Callable[[Path], object]  #: Returns an answer, which must always be the same.
    kinds: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda _: None
    errors: tuple[type[Exception], ...] = (AiomlcError,)


def _open(root: Path) -> object:
    with MLCEngine(root / "model", engine_config=CONFIG) as engine:
        answer = engine.completions.create(prompt="Hello", max_tokens=2, temperature=0)
    return answer.choices[0].text


def _without_weights(root: Path) -> None:
    shutil.rmtree(root / "home" / "weights")


def _convert(root: Path) -> object:
    async def run() -> int:
        done = await convert_weights(
            root / "model", root / "out", quantization="q4f16_1", force=True, num_threads=2
        )
        return done.nbytes

    return anyio.run(run), sorted(path.name for path in (root / "out").iterdir())


def _batch(root: Path) -> object:
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": _QUESTION}
        for i in range(3)
    ]
    (root / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def run() -> None:
        async with AsyncMLCEngine(root / "model", engine_config=CONFIG) as engine:
            await run_batch(engine, root / "in.jsonl", root / "out.jsonl")

    anyio.run(run)
    answers = [json.loads(line) for line in (root / "out.jsonl").read_text().splitlines()]
    return sorted((a["custom_id"], a["response"]["status_code"]) for a in answers)


def _serve(root: Path) -> object:
    async def run() -> Any:  # noqa: ANN401 - JSON.
        async with AsyncMLCEngine(root / "model", engine_config=CONFIG) as engine:
            app = create_app({"model": engine}, ServerOptions())
            async with http_client(app) as client:
                answer = await client.post("/v1/chat/completions", json=_QUESTION)
                if answer.status_code == 200:
                    return answer.json()["choices"][0]["message"]["content"]

                again = await client.post("/v1/chat/completions", json=_QUESTION)
                assert again.status_code == 200, "the server did not recover"
                raise _RefusedError(answer.json()["error"]["message"])

    return anyio.run(run)


class _RefusedError(AiomlcError):
    """The server's error, in OpenAI's format."""


_FILES = ("open", "read", "write", "sync", "rename", "mkdir", "lock", "map")
SCENARIOS = {
    "open": Scenario(_open, (*_FILES, "allocate", "thread"), _without_weights),
    "open cached": Scenario(_open, ("open", "read", "write", "rename", "lock", "map")),
    "convert": Scenario(_convert, (*_FILES, "allocate", "thread")),
    "batch": Scenario(_batch, ("open", "read", "write", "sync"), errors=(AiomlcError, OSError)),
    "serve": Scenario(_serve, ("allocate", "thread")),
}


class Faults:
    """The library of `failing_calls.c`, which is preloaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_disarm.restype = ctypes.c_long
        self._library.faults_arm.argtypes = (
            *(ctypes.c_int, ctypes.c_long),
            *(ctypes.c_int, ctypes.c_char_p),
        )

    def arm(self, kind: str, call: int, root: Path) -> None:
        """Make a call of a kind fail; 0 fails none."""
        number = list(KINDS).index(kind) + 1
        self._library.faults_arm(number, call, KINDS[kind], f"{root}/".encode())

    def disarm(self) -> int:
        """Make no call fail any more; return the number of calls since `arm`."""
        return int(self._library.faults_disarm())


class _Log(logging.Handler):
    """The warnings about a damaged cache."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._damages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "is damaged" in record.getMessage():
            self._damages.append(record.getMessage())

    def take_wrong_damage(self, number: int) -> str | None:
        """Return what was called damaged, if the system only lacked something; forget it."""
        damages, self._damages = self._damages, []
        is_wrong = damages and is_transient(OSError(number, ""))
        return f"taken for damage: {damages}" if is_wrong else None


def _fresh(base: Path, scenario: Scenario) -> AbstractContextManager[Path]:
    """Return a context with a new directory, which has the model and the cache of the base."""
    root = base / "run"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base / "model", root / "model")
    shutil.copytree(base / "home", root / "home")
    os.environ["AIOMLC_HOME"] = str(root / "home")
    scenario.prepare(root)
    return nullcontext(root)


def _outcome(root: Path, scenario: Scenario, faults: Faults, kind: str, call: int) -> Any:  # noqa: ANN401
    """Return the answer, or the error as a string, with a problem if it is not typed."""
    faults.arm(kind, call, root)
    try:
        return scenario.run(root), None, None
    except scenario.errors as error:
        return None, f"{type(error).__name__}: {error}", None
    except Exception as error:  # noqa: BLE001 - the result of the trial.
        return None, "".join(traceback.format_exception(error)[-20:]), "not typed"
    finally:
        faults.disarm()


def _leftovers(root: Path) -> list[str]:
    names = (path.relative_to(root).as_posix() for path in root.rglob("*"))
    return [name for name in names if name.rpartition("/")[2].startswith(".")]


def _write(**values: object) -> None:
    sys.stdout.write(json.dumps(values, default=str) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Let each sampled call of each kind fail once."""
    base, name, samples = Path(arguments[0]), arguments[1], int(arguments[2])
    os.environ.pop("LD_PRELOAD")  # Subprocesses do not fail.
    scenario, faults, hidden = SCENARIOS[name], Faults(), []
    log = _Log()
    logging.getLogger("aiomlc").addHandler(log)
    sys.unraisablehook = lambda hook: hidden.append(f"unraisable: {hook.exc_value!r}")
    threading.excepthook = lambda hook: hidden.append(f"in a thread: {hook.exc_value!r}")
    with _fresh(base, scenario) as root:
        expected = scenario.run(root)
    for kind in scenario.kinds:
        with _fresh(base, scenario) as root:
            faults.arm(kind, 0, root)
            assert scenario.run(root) == expected
            count = faults.disarm()
        step = max(1, count // samples) if samples else 1
        for call in range(1, count + 1, step):
            _write(scenario=name, kind=kind, call=call, of=count)
            with _fresh(base, scenario) as root:
                answer, error, problem = _outcome(root, scenario, faults, kind, call)
                gc.collect()
                if error is None and answer != expected:
                    problem = f"another answer: {answer}"
                problem = problem or "; ".join(hidden) or log.take_wrong_damage(KINDS[kind])
                hidden.clear()
                again = scenario.run(root)
                if again != expected:
                    problem = problem or f"afterwards another answer: {again}"
                if leftovers := _leftovers(root):
                    problem = problem or f"left: {leftovers}"
            _write(error=error, problem=problem)


if __name__ == "__main__":
    main(sys.argv[1:])
