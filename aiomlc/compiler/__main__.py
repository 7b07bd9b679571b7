"""`python -m aiomlc.compiler PARENT JOB`: compile the job file JOB into its directory.

Progress is written to stdout as JSON lines; a failure writes its exception as the last line. If the
process PARENT ends, the compiler removes the directory and ends, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import TracebackType

from aiomlc.compiler.job import CompileJob, LibraryWriteError

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.


def _write(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _report(stage: str, fraction: float) -> None:
    _write(stage=stage, fraction=fraction)


def _report_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    failure: dict[str, object] = {"error": kind.__name__, "message": str(error)}
    if isinstance(error, LibraryWriteError):
        failure["write_errno"] = error.errno
    _write(**failure)
    sys.__excepthook__(kind, error, trace)


def _end_with_parent(parent: int, directory: Path) -> None:
    """Make the kernel signal the end of the parent, upon which the compiler ends."""

    def end(*_: object) -> None:
        # The signal is also sent when only the thread that started this process ends.
        if os.getppid() != parent:
            shutil.rmtree(directory, ignore_errors=True)
            os._exit(1)

    signal.signal(signal.SIGUSR1, end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR1), 0, 0, 0)
    end()  # The parent may have ended before the call.


def main(arguments: list[str]) -> None:
    """Compile the job file named by `arguments`."""
    sys.excepthook = _report_failure
    parent, job_path = arguments
    path = Path(job_path)
    _end_with_parent(int(parent), path.parent)
    job = CompileJob.from_json(json.loads(path.read_bytes()))
    _report("import", 0.0)
    # tvm imports torch if it is installed, which takes longer than compiling.
    sys.modules["torch"] = None  # type: ignore[assignment]
    # Imported late, so that the first progress line does not wait for tvm.
    from aiomlc.compiler.build import build

    build(job, path.parent, _report)
    _report("done", 1.0)
    sys.stdout.flush()
    os._exit(0)  # The files are closed; unloading tvm would take another half second.


if __name__ == "__main__":
    main(sys.argv[1:])
