"""`python -m aiomlc.compiler JOB`: compile the job file JOB into its directory.

Progress is written to stdout as JSON lines; a failure writes its exception as the last line.
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
    """Compile the job file named by `arguments`."""
    sys.excepthook = _report_failure
    (path,) = map(Path, arguments)
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
