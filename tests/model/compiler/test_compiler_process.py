"""The compiler's process: failures, cancellation, and the end of its caller."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from aiomlc.cache import Staged
from aiomlc.compiler import CompileJob, CompileProgress, cache, compile_model
from aiomlc.errors import BadRequestError, CompileError, ModelLoadError
from aiomlc.workers import process as worker_module
from tests.model.compiler.jobs import JOB, Install, entries


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait, for as long as the test may take, for something that another process does."""
    while not condition():
        time.sleep(0.01)


async def test_a_cancelled_compilation_leaves_nothing(home: Path, processes: list[Process]) -> None:
    with anyio.CancelScope() as scope:
        await compile_model(JOB, on_progress=lambda _: scope.cancel())

    assert scope.cancelled_caught
    assert processes[0].returncode is not None
    assert entries(home) == []


async def test_a_compiler_that_ignores_the_signal_is_killed(
    home: Path,
    fake_compiler: Install,
    processes: list[Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "GRACE_SECONDS", 0.01)
    fake_compiler(
        'trap \'\' TERM\necho \'{"stage": "graph", "fraction": 0.5}\'\nwhile :; do sleep 0.05; done'
    )

    with anyio.CancelScope() as scope:
        await compile_model(JOB, on_progress=lambda _: scope.cancel())

    assert scope.cancelled_caught
    assert processes[0].returncode == -9
    assert entries(home) == []


async def test_an_exception_in_on_progress_ends_the_compiler(
    home: Path, processes: list[Process]
) -> None:
    def fail(_: CompileProgress) -> None:
        raise LookupError("callback")

    with pytest.raises(LookupError, match="callback"):
        await compile_model(JOB, on_progress=fail)

    assert processes[0].returncode is not None
    assert entries(home) == []


async def test_a_compiler_failure_is_reported_with_its_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_job(staged: Staged, _: CompileJob) -> None:
        (staged.path / cache.JOB_NAME).write_text("{}")

    monkeypatch.setattr(cache, "write_job", write_job)

    with pytest.raises(CompileError, match="config\n  Field required") as caught:
        await compile_model(JOB)

    assert 'aiomlc/compiler/job.py", line ' in str(caught.value)  # The end of the traceback.
    assert entries(home) == []


async def test_a_killed_compiler_is_reported_with_its_exit_status(
    home: Path, fake_compiler: Install
) -> None:
    fake_compiler("echo last words >&2\nkill -9 $$")

    with pytest.raises(CompileError, match=r"exit status -9\nlast words"):
        await compile_model(JOB)

    assert entries(home) == []


async def test_an_unsupported_job_is_rejected_before_a_process_starts(
    processes: list[Process],
) -> None:
    with pytest.raises(BadRequestError, match=r"Device is not found on your .*: metal") as device:
        await compile_model(replace(JOB, device="metal"))
    with pytest.raises(
        ModelLoadError, match=r"must be one of q0f32, .* got 'q3f16_1'"
    ) as quantization:
        await compile_model(replace(JOB, quantization="q3f16_1"))

    assert device.value.param == "device"
    assert quantization.value.field == "quantization"
    assert processes == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_compiler_of_a_killed_process_ends_and_leaves_nothing(home: Path, backend: str) -> None:
    script = (
        "import anyio, os, pickle, signal, sys\n"
        "from aiomlc.compiler import compile_model\n"
        "from aiomlc.runtime.native.library import load_native\n"
        "def kill(progress):\n"
        "    if progress.stage == 'import': os.kill(os.getpid(), signal.SIGKILL)\n"
        "load_native()\n"
        "job = pickle.load(sys.stdin.buffer)\n"
        f"anyio.run(lambda: compile_model(job, on_progress=kill), backend={backend!r})\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(JOB), check=False)

    assert ended.returncode == -signal.SIGKILL
    _wait_until(lambda: entries(home) == [])


async def test_a_full_disk_is_reported_with_what_to_do(home: Path, fake_compiler: Install) -> None:
    fake_compiler(
        'echo \'{"error": "LibraryWriteError", "message": "full", "write_errno": 28}\'; exit 1'
    )

    with pytest.raises(ModelLoadError, match="No space left on device; free some space"):
        await compile_model(JOB)

    assert entries(home) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_library_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / cache.JOB_NAME).write_text(json.dumps(JOB.as_json()))
    (tmp_path / cache.LIBRARY_NAME).symlink_to("/dev/full")
    command = [sys.executable, "-m", "aiomlc.compiler", str(os.getpid())]

    ended = subprocess.run(
        [*command, str(tmp_path / cache.JOB_NAME)], capture_output=True, check=False
    )

    failure = json.loads(ended.stdout.splitlines()[-1])
    assert (failure["error"], failure["write_errno"]) == ("LibraryWriteError", errno.ENOSPC)


def test_a_cache_directory_that_cannot_be_written_is_reported(home: Path) -> None:
    home.write_text("a file is in the way")

    with pytest.raises(ModelLoadError, match="cannot write the cache") as caught:
        anyio.run(compile_model, JOB)

    assert caught.value.path == home / "libraries"
