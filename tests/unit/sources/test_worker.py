"""What the downloading process does when the hub misbehaves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from aiomlc.sources import hub as hub_module
from aiomlc.sources.hub import as_failure
from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.sources.worker import run_job
from tests.fake_hub import FakeHub

NAME = "ada/pebble"
WEIGHTS = bytes(range(256)) * 2048
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "README.md": b"# A model",
}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits instead of waiting."""
    waited: list[float] = []
    monkeypatch.setattr("aiomlc.sources.hub.time.sleep", waited.append)
    return waited


class Download:
    """A job, run in this process."""

    def __init__(self, hub: FakeHub, cache: Path) -> None:
        self.hub = hub
        self.cache = cache
        self.progress: list[DownloadProgress] = []

    def run(self, **fields: Any) -> Path:  # noqa: ANN401
        """Return the directory of the snapshot."""
        job = {
            "repository": NAME,
            "revision": "main",
            "file": None,
            "cache": str(self.cache),
            "endpoint": self.hub.endpoint,
            "is_offline": False,
            "is_hasty": False,
        }
        commit = run_job(DownloadJob(**{**job, **fields}), self.progress.append)
        return self.folder / "snapshots" / commit

    def fail(self, **fields: Any) -> Failure:  # noqa: ANN401
        """Return how it fails."""
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the process reports.
            self.run(**fields)
        failure = as_failure(caught.value) if isinstance(caught.value, Exception) else None
        assert failure is not None
        return failure

    @property
    def folder(self) -> Path:
        return self.cache / "models--ada--pebble"

    @property
    def weight_requests(self) -> list[str | None]:
        """The range of each request for weights."""
        requests = (request for request in self.hub.requests if "safetensors" in request.path)
        return [r.headers.get("Range") for r in requests if r.headers["Host"].startswith("local")]


@pytest.fixture
def download(hub: FakeHub, cache: Path) -> Download:
    hub.add(NAME, FILES)
    return Download(hub, cache)


def read(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in FILES.items() if name not in names}


def test_only_the_files_that_are_needed_are_downloaded(hub: FakeHub, download: Download) -> None:
    others = ("pytorch_model.bin", "model.pth", "onnx/model.onnx", "original/config.json", "q.gguf")
    hub.add(NAME, {**FILES, **dict.fromkeys(others, b"x"), "consolidated.safetensors": b"x"})

    assert read(download.run()) == without("README.md")
    assert not [path for path in hub.paths() if path.endswith(("README.md", *others))]


def test_of_shards_those_of_the_index_are_downloaded(hub: FakeHub, download: Download) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "../x"}}
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "other.safetensors": b"3"}
    needed = {**without("model.safetensors", "README.md")}
    needed["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.add(NAME, {**needed, **shards})

    del shards["other.safetensors"]
    assert read(download.run()) == {**needed, **shards}


def test_of_mlc_shards_those_of_the_index_are_downloaded(hub: FakeHub, download: Download) -> None:
    index = {"records": [{"dataPath": "params_shard_0.bin"}]}
    needed = {
        "mlc-chat-config.json": b"{}",
        "ndarray-cache.json": json.dumps(index).encode(),
        "params_shard_0.bin": b"0",
        "tokenizer.json": b"{}",
    }
    hub.add(NAME, {**needed, "params_shard_1.bin": b"1", "model.safetensors": b"2"})

    assert read(download.run()) == needed


def test_all_parts_of_a_gguf_file_are_downloaded(hub: FakeHub, download: Download) -> None:
    parts = {f"Q4/x-0000{part}-of-00002.gguf": b"%d" % part for part in (1, 2)}
    hub.add(NAME, {**FILES, **parts, "x.gguf": b"x"})

    assert read(download.run(file=next(iter(parts))) / "Q4") == {
        Path(name).name: data for name, data in parts.items()
    }
    assert (download.run(file="x.gguf") / "x.gguf").read_bytes() == b"x"
    assert not [path for path in hub.paths() if "safetensors" in path]
    failure = download.fail(file="Q4/x-00002-of-00002.gguf")
    assert (failure.kind, "name Q4/x-00001-of-00002.gguf" in failure.detail) == ("format", True)
    failure = download.fail(file="y.gguf")
    assert failure.kind == "file"
    assert failure.detail.endswith("its GGUF files are Q4/x-00001-of-00002.gguf, x.gguf")


@pytest.mark.parametrize(
    ("files", "detail"),
    [
        ({"q8.gguf": b""}, "it has GGUF files only: name one of them after a colon: q8.gguf"),
        ({"config.json": b"", "pytorch_model.bin": b""}, "PyTorch's pickled weights"),
        ({"model.safetensors": b""}, "it contains no weights in a known format"),
        ({}, "it contains no weights in a known format"),
    ],
)
def test_a_repository_that_cannot_be_opened_is_explained(
    hub: FakeHub, download: Download, files: dict[str, bytes], detail: str
) -> None:
    hub.add(NAME, files)

    failure = download.fail()

    assert failure.kind == "format"
    assert detail in failure.detail
    assert not [path for path in hub.paths() if "resolve" in path]


def test_huggingface_hub_finds_what_was_downloaded(download: Download) -> None:
    directory = download.run()

    for revision in ("main", directory.name):
        found = snapshot_download(
            NAME, cache_dir=download.cache, revision=revision, local_files_only=True
        )
        assert Path(found) == directory


def test_what_huggingface_hub_downloaded_is_not_downloaded_again(
    hub: FakeHub, download: Download
) -> None:
    path = snapshot_download(NAME, cache_dir=download.cache, endpoint=hub.endpoint)
    hub.requests.clear()

    assert download.run() == Path(path)
    assert hub.paths() == [f"/api/models/{NAME}/revision/main"]


@pytest.mark.parametrize("ignore_range", [False, True])
def test_a_connection_that_is_cut_is_continued(
    hub: FakeHub, download: Download, *, ignore_range: bool
) -> None:
    hub.misbehave("safetensors", cut_after=300_000, times=1, ignore_range=ignore_range)
    hub.misbehave("safetensors", ignore_range=ignore_range)

    assert (download.run() / "model.safetensors").read_bytes() == WEIGHTS
    assert download.weight_requests == [None, "bytes=300000-"]


def test_a_connection_that_is_cut_again_and_again_is_given_up(
    hub: FakeHub, download: Download, waits: list[float]
) -> None:
    hub.misbehave("safetensors", cut_after=0)

    failure = download.fail()

    assert (failure.kind, failure.status) == ("network", None)
    assert len(download.weight_requests) == 5
    assert [round(wait) for wait in waits] == pytest.approx([0.5, 1, 2, 4], abs=1.1)
    assert sum("trying again" in progress.message for progress in download.progress) == 4
    assert not (download.folder / "snapshots").joinpath("model.safetensors").exists()


def test_a_partial_file_is_continued_and_then_verified(hub: FakeHub, download: Download) -> None:
    blobs = download.folder / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(WEIGHTS).hexdigest()}.incomplete"
    partial.write_bytes(WEIGHTS[:1000])

    assert (download.run() / "model.safetensors").read_bytes() == WEIGHTS
    assert download.weight_requests == ["bytes=1000-"]
    assert not partial.exists()


@pytest.mark.parametrize("content", [b"x" * 1000, WEIGHTS + b"x", b"x" + WEIGHTS[1:]])
def test_a_torn_partial_file_is_never_used(download: Download, content: bytes) -> None:
    blobs = download.folder / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(WEIGHTS).hexdigest()}.incomplete").write_bytes(content)

    assert (download.run() / "model.safetensors").read_bytes() == WEIGHTS
    assert download.weight_requests[-1] is None


@pytest.mark.parametrize("fault", [{"corrupt": True}, {"shorten": 1000}, {"body": b"x"}])
@pytest.mark.parametrize("name", ["safetensors", "resolve/.*/config.json"])
def test_what_is_damaged_once_is_downloaded_again(
    hub: FakeHub, download: Download, name: str, fault: dict[str, Any]
) -> None:
    if "body" in fault:
        fault = {"corrupt": True, "ignore_range": True}
    hub.add(NAME, {**FILES, "config.json": b" " * 2000})
    hub.misbehave(name, times=1, **fault)

    assert read(download.run()) == {**without("README.md"), "config.json": b" " * 2000}


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ({"corrupt": True}, "model.safetensors does not match its hash"),
        ({"shorten": 1000}, "model.safetensors has fewer than its 524288 bytes"),
        ({"shorten": 1000, "ignore_range": True}, "model.safetensors has fewer than"),
    ],
)
def test_what_stays_damaged_is_an_error(
    hub: FakeHub, download: Download, fault: dict[str, Any], detail: str
) -> None:
    hub.misbehave("safetensors", **fault)

    failure = download.fail()

    assert failure.kind == "damaged"
    assert failure.detail.startswith(detail)
    assert not [path for path in download.folder.rglob("*") if "safetensors" in path.name]
    hub.faults.clear()
    assert read(download.run()) == without("README.md")


def test_a_file_that_is_longer_than_announced_is_an_error(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = hub_module._parse_listing

    def shorter(answer: Any) -> Any:  # noqa: ANN401
        answer["siblings"][1]["lfs"]["size"] -= 1
        return listing(answer)

    monkeypatch.setattr(hub_module, "_parse_listing", shorter)

    assert download.fail().detail == "model.safetensors has more than its 524287 bytes"


def test_a_file_that_was_damaged_in_the_cache_is_downloaded_again(download: Download) -> None:
    weights = (download.run() / "model.safetensors").resolve()
    weights.chmod(0o644)
    weights.write_bytes(b"x" + WEIGHTS[1:])

    assert (download.run() / "model.safetensors").read_bytes() == WEIGHTS
    assert len(download.weight_requests) == 2


def test_a_verified_file_is_not_read_again(
    download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    download.run()
    monkeypatch.setattr("aiomlc.sources.worker.BlobStore.provide", None)

    download.run()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
@pytest.mark.parametrize("path", ["api", "config.json", "safetensors"])
def test_a_transient_status_is_tried_again(
    hub: FakeHub, download: Download, waits: list[float], path: str, status: int
) -> None:
    hub.misbehave(path, status=status, times=2)

    assert read(download.run()) == without("README.md")
    assert len(waits) == 2


def test_a_short_rate_limit_is_waited_for(
    hub: FakeHub, download: Download, waits: list[float]
) -> None:
    hub.misbehave("api", status=429, headers={"Retry-After": "7"}, times=1)
    hub.misbehave("config", status=429, headers={"RateLimit": '"api";r=0;t=9'}, times=1)

    download.run()

    assert waits == [7.0, 9.0]


def test_a_long_rate_limit_is_an_error(
    hub: FakeHub, download: Download, waits: list[float]
) -> None:
    hub.misbehave("safetensors", status=429, headers={"Retry-After": "3600"})

    failure = download.fail()

    assert (failure.kind, failure.status, failure.retry_after) == ("rate", 429, 3600.0)
    assert waits == []


@pytest.mark.parametrize(
    ("path", "status", "code", "kind"),
    [
        ("api", 401, "", "repository"),  # The hub does not say whether a private one exists.
        ("api", 404, "RepoNotFound", "repository"),
        ("api", 404, "", "repository"),
        ("api", 404, "RevisionNotFound", "revision"),
        ("config.json", 404, "EntryNotFound", "file"),
        ("safetensors", 401, "GatedRepo", "gated"),
        ("safetensors", 403, "GatedRepo", "gated"),
        ("safetensors", 403, "", "repository"),
        ("api", 400, "", "network"),
        ("api", 500, "", "network"),
    ],
)
def test_a_refusal_has_its_kind(
    hub: FakeHub, download: Download, path: str, status: int, code: str, kind: str
) -> None:
    hub.misbehave(path, status=status, headers={"X-Error-Code": code} if code else {})

    failure = download.fail(is_hasty=True)

    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_reported_as_such(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    message = "Invalid credentials in Authorization header"
    hub.misbehave("api", status=status, headers={"X-Error-Message": message})

    assert download.fail().kind == "access"


def test_the_token_reaches_the_hub_and_no_other_host(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    download.run()

    for request in hub.requests:
        is_hub = request.headers["Host"].startswith("127.0.0.1")
        assert request.headers.get("Authorization") == ("Bearer hf_secret" if is_hub else None)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"sha": "../..", "siblings": []}', b'{"sha": null}',
             b'{"siblings": [{"rfilename": "a", "size": 1, "blobId": "../a"}], "sha": ""}']
)  # fmt: skip
def test_an_answer_that_is_not_a_hubs_is_an_error(
    hub: FakeHub, download: Download, body: bytes
) -> None:
    hub.misbehave("api", body=body)

    failure = download.fail(is_hasty=True)

    assert failure.kind == "network"
    assert "does not answer as a hub does" in failure.detail


def test_no_hub_at_all_is_an_error(download: Download) -> None:
    failure = download.fail(endpoint="http://127.0.0.1:9", is_hasty=True)

    assert failure.kind == "network"
    assert "ConnectError" in failure.detail


def test_a_full_disk_is_an_error_before_anything_is_downloaded(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 100_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    failure = download.fail()

    assert failure.kind == "disk"
    assert failure.detail == "524,288 bytes are needed, and 100,000 are free"
    assert download.weight_requests == []


def test_a_cache_that_cannot_be_written_is_an_error(download: Download, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert download.fail(cache=str(tmp_path / "file")).kind == "disk"


def test_without_the_hub_what_is_cached_is_verified(hub: FakeHub, download: Download) -> None:
    directory = Path(snapshot_download(NAME, cache_dir=download.cache, endpoint=hub.endpoint))
    hub.requests.clear()

    assert download.run(is_offline=True) == directory
    assert download.run(is_offline=True, revision=directory.name) == directory
    (directory / "model.safetensors").resolve().write_bytes(b"x" + WEIGHTS[1:])
    failure = download.fail(is_offline=True)
    assert (failure.kind, failure.detail) == (
        "offline",
        "model.safetensors is damaged in the cache",
    )
    (directory / "model.safetensors").unlink()
    assert download.fail(is_offline=True).kind == "offline"
    assert download.fail(is_offline=True, revision="v2").detail == "it is not in the cache"
    assert hub.requests == []


def test_the_progress_ends_with_all_bytes(download: Download) -> None:
    download.run()

    total = sum(map(len, without("README.md").values()))
    last = download.progress[-1]
    assert (last.done_bytes, last.total_bytes) == (total, total)
    done = [progress.done_bytes for progress in download.progress]
    assert done == sorted(done)
    assert {progress.file for progress in download.progress} <= FILES.keys()
