"""`python -m aiomlc.compiler JOB`: compile the job of a file into the file's folder.

Progress goes to stdout as JSON lines, and so does the exception that ends a failure.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import TracebackType

from aiomlc.compiler.job import CompileJob


def _write(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _report(stage: str, fraction: float) -> None:
    _write(stage=stage, fraction=fraction)


def _report_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _write(error=kind.__name__, message=str(error))
    sys.__excepthook__(kind, error, trace)


def main(arguments: list[str]) -> None:
    """Compile one job."""
    sys.excepthook = _report_failure
    (path,) = map(Path, arguments)
    job = CompileJob.from_json(json.loads(path.read_bytes()))
    _report("import", 0.0)
    # Where torch is installed tvm imports it, which takes longer than compiling.
    sys.modules["torch"] = None  # type: ignore[assignment]
    # Imported late so that the first line does not wait for tvm.
    from aiomlc.compiler.build import build

    build(job, path.parent, _report)
    _report("done", 1.0)
    sys.stdout.flush()
    os._exit(0)  # The files are closed; tearing tvm down takes another half second.


if __name__ == "__main__":
    main(sys.argv[1:])
