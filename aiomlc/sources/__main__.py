"""`python -m aiomlc.sources PARENT JOB`: download what the JSON object JOB describes.

Progress is written to stdout as JSON lines; the last one has the commit, or the failure. If the
process PARENT ends, the download ends, too; another one continues it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict

from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.workers.parent import end_with_parent, write_message


def _report(progress: DownloadProgress) -> None:
    write_message(progress=asdict(progress))


def main(arguments: list[str]) -> None:
    """Run the job that `arguments` describe."""
    parent, job = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent decides.
    end_with_parent(int(parent), lambda: None)
    # The HTTP client imports trio if it is installed, and does not use it here.
    sys.modules["trio"] = None  # type: ignore[assignment]
    # Imported late, so that the end of the parent is noticed meanwhile.
    from aiomlc.sources.hub import as_failure
    from aiomlc.sources.worker import run_job

    try:
        write_message(commit=run_job(DownloadJob(**json.loads(job)), _report))
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - reported to the parent.
        failure = as_failure(error)
        if failure is None:
            traceback.print_exc()
            failure = Failure("worker", f"{type(error).__name__}: {error}")
        write_message(failure=asdict(failure))
        os._exit(1)  # Threads that still download are not waited for.


if __name__ == "__main__":
    main(sys.argv[1:])
