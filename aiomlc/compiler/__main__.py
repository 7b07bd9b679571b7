"""`python -m aiomlc.compiler PARENT JOB`: compile the job file JOB into its directory.

Progress is written to stdout as JSON lines; a failure writes its exception as the last line. If the
process PARENT ends, the compiler removes the directory and ends, too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from types import TracebackType

from aiomlc.compiler.job import CompileJob, LibraryWriteError
from aiomlc.workers.parent import end_with_parent, write_message


def _report(stage: str, fraction: float) -> None:
    write_message(stage=stage, fraction=fraction)


def _report_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    failure: dict[str, object] = {"error": kind.__name__, "message": str(error)}
    if isinstance(error, LibraryWriteError):
        failure["write_errno"] = error.errno
    write_message(**failure)
    sys.__excepthook__(kind, error, trace)


def main(arguments: list[str]) -> None:
    """Compile the job file named by `arguments`."""
    sys.excepthook = _report_failure
    parent, job_path = arguments
    path = Path(job_path)
    end_with_parent(int(parent), partial(shutil.rmtree, path.parent, ignore_errors=True))
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
