"""A peer engine in a subprocess, under the interpreter that has it installed, driven over pipes."""

from __future__ import annotations

__all__ = ("GenerateResult", "PeerProcess", "has_package")

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

_ROOT = Path(__file__).parents[3]
_MAX_ERROR_CHARACTERS = 2000
_EXIT_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Cost of one generate call, by the peer's clock."""

    seconds: float
    peak_bytes: int  #: Peak resident memory of the process so far, mapped files included.


def has_package(python: Path, name: str) -> bool:
    """Whether the interpreter `python` has the package `name`."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


@final
class PeerProcess:
    """A running `benchmarks.suite.peers.peer_server`; call `close` when done."""

    def __init__(
        self, python: Path, args: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the process and wait until the peer is ready; `load_seconds` is the time it took.

        Raises:
            RuntimeError: If the process exits first; the message has the end of its stderr.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`.
        self._command = [str(python), "-m", "benchmarks.suite.peers.peer_server", *args]
        start = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **(environment or {})},
            text=True,
        )
        self.load_seconds = float(self._read()["ready"]) - start

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> GenerateResult:
        """Generate exactly `tokens` tokens for each prompt of token ids, as one batch.

        Raises:
            RuntimeError: If the process exited; the message has the end of its stderr.
        """
        assert self._process.stdin is not None, "stdin is a pipe"
        try:
            print(json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

        return GenerateResult(**self._read())

    def close(self) -> None:
        """End the process; a second call has no effect."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "stdout is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()

        message: dict[str, Any] = json.loads(line)
        return message

    def _failure(self) -> RuntimeError:
        status = self._process.wait()
        self._errors.seek(0)
        stderr = self._errors.read().decode(errors="replace")[-_MAX_ERROR_CHARACTERS:]
        self.close()
        return RuntimeError(f"{' '.join(self._command)} exited with status {status}:\n{stderr}")
