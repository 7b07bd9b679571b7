"""The trial of a new `tokenizer.json` in a process with limits, before this process parses it.

Some normalizers crash on certain texts, or multiply a text until the allocator of Rust aborts the
process, which no exception handler sees. So each new file is tried out once in a subprocess. A file
that passed is remembered by its digest below `AIOMLC_HOME`; one that was refused is tried again.
"""

from __future__ import annotations

__all__ = ("try_tokenizer",)

import hashlib
import logging
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from aiomlc.cache import cache_home
from aiomlc.config import BUNDLED_FOLDER
from aiomlc.errors import ModelLoadError
from aiomlc.runtime.tokenization.trial_process import READY, REFUSED, VERSION

_TIMEOUT = 60.0  # Seconds of wall time; the limit of CPU time is far lower.
_SIGNALS: dict[int, str] = {
    signal.SIGABRT: "aborted",
    signal.SIGXCPU: "needed too much CPU time",
    signal.SIGKILL: "needed too much CPU time",
    signal.SIGSEGV: "crashed",
}

_log = logging.getLogger("aiomlc")


def try_tokenizer(path: Path, content: bytes) -> None:
    """Try out the contents of a `tokenizer.json`, unless they have passed before.

    The tokenizers of the bundled models are not tried. If no process can be started, the file is
    used without a trial, and a warning is logged.

    Raises:
        ModelLoadError: If the tokenizer fails, or needs too much memory or time.
    """
    if path.resolve().is_relative_to(BUNDLED_FOLDER):
        return

    record = cache_home() / "tokenizers" / _key(content)
    if record.exists():
        return

    try:
        problem = _run(content)
    except OSError as error:
        _log.warning("%s: used without a trial, since no process can be started: %s", path, error)
        return

    if problem is not None:
        raise ModelLoadError(f"{path}: {problem}", path=path)

    _remember(record)


def _key(content: bytes) -> str:
    versions = f"{VERSION} {metadata.version('tokenizers')}\0".encode()
    return hashlib.sha256(versions + content).hexdigest()


def _run(content: bytes) -> str | None:
    """Return why the trial failed, or None if it passed.

    Raises:
        OSError: If the process cannot be started.
    """
    module = "aiomlc.runtime.tokenization.trial_process"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module],
            input=content,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            env={
                **os.environ,
                # The child imports modules from the same paths in the same order.
                "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
                "RUST_BACKTRACE": "0",
                "TOKENIZERS_PARALLELISM": "false",
            },
        )
    except subprocess.TimeoutExpired:
        return f"{REFUSED}: it needed more than {_TIMEOUT:g} s"

    output, errors = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    ready, _, verdict = output.partition("\n")
    if ready != READY:
        raise OSError(f"the process ended with status {done.returncode}: {_last_line(errors)}")

    if done.returncode == 0:
        return verdict.strip() or None

    return _failure(done.returncode, errors)


def _failure(status: int, errors: str) -> str:
    end = _SIGNALS.get(-status) if status < 0 else "failed"
    end = end or f"was killed by signal {-status}"
    return f"{REFUSED}: it {end}: {_last_line(errors)}".rstrip(": ")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith("note:")]
    return messages[-1][:300] if messages else ""


def _remember(record: Path) -> None:
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()
    except OSError as error:
        _log.debug("%s: cannot write: %s", record, error)
