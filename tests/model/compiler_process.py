"""One compiler process for the models of all tests: importing tvm takes longer than compiling.

`tests/model/compiler` shows that each model of a user is compiled by a process of its own.
"""

from __future__ import annotations

__all__ = ("CompilerProcess",)

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from aiomlc.compiler.cache import JOB_NAME
from aiomlc.compiler.job import CompileJob


class CompilerProcess:
    """A process that compiles one job after another; it starts with the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def compile(self, directory: Path) -> None:
        """Compile the job of a directory into it.

        Raises:
            RuntimeError: If the compiler fails.
        """
        with self._lock:
            if self._process is None:
                command = [sys.executable, "-m", "tests.model.compiler_process"]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(directory, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        if answer != "done\n":
            raise RuntimeError(f"the compiler of the tests failed: {answer or 'see its traceback'}")


def _serve() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]
    from aiomlc.compiler.build import build

    for line in sys.stdin:
        directory = Path(line.rstrip("\n"))
        job = CompileJob.from_json(json.loads((directory / JOB_NAME).read_bytes()))
        build(job, directory, lambda stage, fraction: None)
        print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
