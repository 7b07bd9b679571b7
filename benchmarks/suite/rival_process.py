"""A rival in an interpreter that has it, driven over pipes."""

from __future__ import annotations

__all__ = ("Answer", "RivalProcess", "has_package")

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

_ROOT = Path(__file__).parents[2]
_ERROR_CHARACTERS = 2000
_SECONDS_TO_END = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call cost, by the rival's own clock."""

    seconds: float
    peak_bytes: int  #: Most memory ever resident in the process so far, mapped files included.


def has_package(python: Path, name: str) -> bool:
    """Whether an interpreter finds a package."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


@final
class RivalProcess:
    """`benchmarks.suite.serve`, from its start until `close`."""

    def __init__(
        self, python: Path, words: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Returns when the rival is ready; `load_seconds` is how long that took.

        Raises:
            RuntimeError: it ended before; the message holds the end of what it said.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`.
        self._command = [str(python), "-m", "benchmarks.suite.serve", *words]
        began = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **(environment or {})},
            text=True,
        )
        self.load_seconds = float(self._read()["ready"]) - began

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int) -> Answer:
        """Answer prompts of token ids, all at once, with exactly that many tokens each.

        Raises:
            RuntimeError: the process ended; the message holds the end of what it said.
        """
        assert self._process.stdin is not None, "it is a pipe"
        try:
            print(json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

        return Answer(**self._read())

    def close(self) -> None:
        """End it; does nothing the second time."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()

        message: dict[str, Any] = json.loads(line)
        return message

    def _failure(self) -> RuntimeError:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")[-_ERROR_CHARACTERS:]
        self.close()
        return RuntimeError(f"{' '.join(self._command)} ended with {code}:\n{said}")
