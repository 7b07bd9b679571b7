"""From the name of a model to its path, through the downloading process."""

from __future__ import annotations

import errno
import logging
import signal
import traceback
from pathlib import Path
from typing import get_args

import pytest
from anyio import CancelScope, create_task_group
from anyio.abc import Process

from aiomlc import ModelAccessError, ModelDownloadError, ModelLoadError, ModelNotFoundError
from aiomlc.sources import resolve
from aiomlc.sources.environment import HubEnvironment
from aiomlc.sources.failures import download_error
from aiomlc.sources.job import DownloadProgress, Failure, FailureKind
from aiomlc.sources.reference import HubReference
from aiomlc.sources.resolve import LocalModel, fetch, find_local
from tests.fake_hub import FakeHub
from tests.started_processes import record_processes

NAME = "ada/pebble"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": bytes(range(256)) * 4096,
    "tokenizer.json": b"{}",
}
HUB = HubEnvironment(Path("/hf/hub"), "http://hub", is_offline=False)


def ignore(progress: DownloadProgress) -> None:
    pass


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Record every process that is started."""
    return record_processes(monkeypatch)


async def test_a_repository_is_downloaded_once(hub: FakeHub, cache: Path) -> None:
    commit = hub.add(NAME, FILES)
    progress: list[DownloadProgress] = []

    model = await fetch(f"HF://{NAME}", progress.append)

    assert model == LocalModel(cache / "models--ada--pebble" / "snapshots" / commit, NAME)
    assert {path.name: path.read_bytes() for path in model.path.iterdir()} == FILES
    assert progress[0].message == f"asking {hub.endpoint} for {NAME}"
    total = sum(map(len, FILES.values()))
    assert (progress[-1].done_bytes, progress[-1].total_bytes) == (total, total)
    hub.requests.clear()
    for name in (NAME, f"HF://{NAME}", f"{NAME}@main", f"{NAME}@{commit}"):
        assert await fetch(name, ignore) == find_local(name) == model
    assert hub.requests == []


async def test_a_branch_is_asked_for_again_and_a_commit_is_not(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = hub.add(NAME, FILES)
    model = await fetch(NAME, ignore)
    new = hub.add(NAME, {**FILES, "config.json": b'{"model_type": "qwen2"}'})
    monkeypatch.setattr(resolve, "CHECK_SECONDS", 0.0)
    hub.requests.clear()

    assert await fetch(f"{NAME}@{old}", ignore) == model
    assert hub.requests == []
    assert (await fetch(NAME, ignore)).path.name == new
    assert [path for path in hub.paths() if "safetensors" in path] == []

    hub.misbehave(status=503)
    with caplog.at_level(logging.WARNING, "aiomlc"):
        assert (await fetch(NAME, ignore)).path.name == new

    assert "status 503; check the connection, HF_ENDPOINT and the proxy" in caplog.text
    assert f"the cached commit {new} is used" in caplog.text
    hub.faults[0].status = 429
    hub.faults[0].headers = {"Retry-After": "3600"}
    with pytest.raises(ModelDownloadError, match="try again in 3600 s"):
        await fetch(NAME, ignore, is_update=True)


async def test_offline_only_what_is_cached_is_found(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, FILES)
    model = await fetch(NAME, ignore)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(resolve, "CHECK_SECONDS", 0.0)
    hub.requests.clear()

    assert await fetch(NAME, ignore) == model
    with pytest.raises(ModelDownloadError, match=r"not in the cache .* HF_HUB_OFFLINE is set"):
        await fetch("ada/other", ignore)
    # Another program has downloaded it, or AIOMLC_HOME is another one.
    monkeypatch.setenv("AIOMLC_HOME", str(model.path.parents[3] / "other"))
    assert await fetch(NAME, ignore) == model
    assert hub.requests == []


async def test_one_error_names_both_that_were_looked_for(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        await fetch("models/llama", ignore)

    assert str(caught.value) == (
        "cannot find model 'models/llama': there is no such directory, and "
        f"{hub.endpoint} has no repository 'models/llama' that everyone may read; check the name, "
        "or, if it is private, set HF_TOKEN, or run `hf auth login`"
    )
    assert (caught.value.path, caught.value.errno) == ("models/llama", errno.ENOENT)
    assert "aiomlc.sources.job" not in "".join(traceback.format_exception(caught.value))


async def test_a_local_directory_is_never_looked_for_on_the_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert await fetch(NAME, ignore) == LocalModel(Path(NAME))
    assert await fetch(tmp_path / "none", ignore) == LocalModel(tmp_path / "none")
    assert hub.requests == []


def incomplete_files(cache: Path) -> list[Path]:
    return list(cache.rglob("*.incomplete"))


async def test_a_cancelled_download_ends_and_is_continued(
    hub: FakeHub, cache: Path, processes: list[Process]
) -> None:
    hub.add(NAME, FILES)
    slow = hub.misbehave("safetensors", block_seconds=0.05)

    with CancelScope() as scope:

        def cancel(progress: DownloadProgress) -> None:
            if progress.file == "model.safetensors":
                scope.cancel()

        await fetch(NAME, cancel)

    assert scope.cancelled_caught
    assert processes[0].returncode == -signal.SIGTERM
    (partial,) = incomplete_files(cache)
    size = partial.stat().st_size
    assert 0 < size < len(FILES["model.safetensors"])
    with pytest.raises(ModelNotFoundError, match="aiomlc pull"):
        find_local(NAME)

    slow.times = 0
    model = await fetch(NAME, ignore)

    assert (model.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert hub.requests[-1].headers["Range"] == f"bytes={size}-"


async def test_an_exception_in_on_progress_ends_the_download(
    hub: FakeHub, processes: list[Process]
) -> None:
    hub.add(NAME, FILES)
    hub.misbehave("safetensors", block_seconds=0.05)

    def fail(progress: DownloadProgress) -> None:
        if progress.file is not None:
            raise LookupError("callback")

    with pytest.raises(LookupError, match="callback"):
        await fetch(NAME, fail)

    assert processes[0].returncode is not None


async def test_a_killed_downloading_process_is_an_error(
    hub: FakeHub, processes: list[Process]
) -> None:
    hub.add(NAME, FILES)
    hub.misbehave("safetensors", block_seconds=0.05)

    def kill(progress: DownloadProgress) -> None:
        if progress.file is not None:
            processes[0].kill()

    with pytest.raises(ModelDownloadError, match="process failed: exit status -9"):
        await fetch(NAME, kill)


async def test_two_processes_download_a_file_once(hub: FakeHub) -> None:
    hub.add(NAME, FILES)
    hub.misbehave("safetensors", block_seconds=0.02)
    models: list[LocalModel] = []

    async def download() -> None:
        models.append(await fetch(NAME, ignore))

    async with create_task_group() as tasks:
        tasks.start_soon(download)
        tasks.start_soon(download)

    assert models[0] == models[1]
    assert {path.name: path.read_bytes() for path in models[0].path.iterdir()} == FILES
    assert len([request for request in hub.requests if "safetensors" in request.path]) == 2


@pytest.mark.parametrize("is_explicit", [False, True])
@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, kind: FailureKind, *, is_explicit: bool
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    expected: dict[FailureKind, tuple[type[ModelLoadError], str]] = {
        "repository": (ModelNotFoundError, "check the name, or, if it is private, set HF_TOKEN"),
        "revision": (ModelNotFoundError, "http://hub/ada/pebble has no revision 'v2'"),
        "file": (ModelNotFoundError, "why at revision 'v2'"),
        "format": (ModelNotFoundError, "cannot be opened: why"),
        "gated": (ModelAccessError, "accept its conditions on that page, and set HF_TOKEN"),
        "access": (ModelAccessError, "check that HF_TOKEN is valid"),
        "rate": (ModelDownloadError, "try again in 90 s, or set HF_TOKEN"),
        "network": (ModelDownloadError, "http://hub cannot be used: why; check the connection"),
        "offline": (ModelDownloadError, "why (/hf/hub), and HF_HUB_OFFLINE is set; unset it"),
        "damaged": (ModelDownloadError, "is damaged: why; try again"),
        "disk": (ModelLoadError, "/hf/hub cannot be written: why; free some space"),
        "worker": (ModelDownloadError, "the downloading process failed: why"),
    }
    error_type, text = expected[kind]

    reference = HubReference(NAME, "v2", is_explicit=is_explicit)
    error = download_error(reference, HUB, Failure(kind, "why", 429, 90.0))

    assert type(error) is error_type
    assert text in str(error)
    assert ("there is no such directory, and" in str(error)) is not is_explicit
    if isinstance(error, ModelDownloadError):
        assert (error.repository, error.status, error.retry_after) == (NAME, 429, 90.0)
