"""What the downloading process does when the hub, the network or the cache misbehaves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from aiomlc.sources import hub as hub_module
from tests.fake_hub import FakeHub
from tests.unit.sources.downloads import FILES, NAME, WEIGHTS, Download, needed, read

pytestmark = pytest.mark.usefixtures("waits")

NAMES: list[object] = ["../a", "/a", "a/../b", "a\0", "", ".", "..", 1, None, []]
SIZES: list[object] = [-1, "1", 1.5, None, []]
DIGESTS: list[object] = ["", "b" * 39, "B" * 40, "b" * 40 + "\n", 1, [], {}]
CHANGES: list[dict[str, Any]] = [
    *({"rfilename": name} for name in NAMES),
    *({"size": size} for size in SIZES),
    *({"blobId": digest} for digest in DIGESTS),
]


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

    assert read(download.run()) == {**needed(), "config.json": b" " * 2000}


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
    assert read(download.run()) == needed()


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

    assert read(download.run()) == needed()
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
             b'{"siblings": [{"rfilename": "a", "size": 1, "blobId": "../a"}], "sha": ""}',
             b'{"siblings": [1], "sha": ""}', b"[" * 1_000_000, b"\xff", b"9" * 10_000,
             *(json.dumps({"sha": "a" * 40, "siblings": [
                 {"rfilename": "a", "size": 1, "blobId": "b" * 40, **change}]}).encode()
               for change in CHANGES)]
)  # fmt: skip
def test_an_answer_that_is_not_a_hubs_is_an_error(
    hub: FakeHub, download: Download, waits: list[float], body: bytes
) -> None:
    hub.misbehave("api", body=body)

    failure = download.fail()

    assert failure.kind == "network"
    assert "does not answer as a hub does" in failure.detail
    assert waits == []  # It would answer the same again.
    assert not [path for path in hub.paths() if "resolve" in path]


@pytest.mark.parametrize("status", [200, 404, 500])
def test_the_size_of_a_list_is_limited(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(hub_module, "_MAX_LISTING_BYTES", 1 << 20)
    hub.misbehave("api", status=status, body=b" " * (32 << 20))

    failure = download.fail(is_hasty=True)

    assert failure.status == status
    assert ("the list of files has more than 1,048,576 bytes" in failure.detail) == (status == 200)
    assert hub.sent_bytes < 32 << 20


def test_the_time_for_a_list_is_limited(
    hub: FakeHub, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_LISTING_TIMEOUTS", 0)

    assert "the list of files takes more than 0 s" in download.fail().detail


@pytest.mark.parametrize("status", [403, 500])
def test_the_body_of_an_error_is_not_interpreted(
    hub: FakeHub, download: Download, status: int
) -> None:
    hub.misbehave("", status=status, body=b'{"error":' * 100_000)

    assert download.fail(is_hasty=True).status == status


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

    total = sum(map(len, needed().values()))
    last = download.progress[-1]
    assert (last.done_bytes, last.total_bytes) == (total, total)
    done = [progress.done_bytes for progress in download.progress]
    assert done == sorted(done)
    assert {progress.file for progress in download.progress} <= FILES.keys()
