"""A Hugging Face hub on the loopback interface, which misbehaves on demand.

It serves what huggingface_hub and this library ask for: the list of files of a revision, and the
files, by `HEAD`, `GET` and `Range`. Files stored with Git LFS are redirected to another host.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

LFS = re.compile(r".*\.(bin|safetensors|gguf)|tokenizer\.json")
_BLOCK_BYTES = 1 << 16
_API = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)/(?P<kind>revision|tree)/(?P<rest>.+)")
_RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class Fault:
    """What the hub does wrong for the requests that match."""

    path: str = ""  #: A regular expression that is searched for in the path.
    method: str = "GET"
    times: int = 1_000_000  #: How many requests it applies to.
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None  #: Bytes of the body after which the connection is cut.
    shorten: int = 0  #: Bytes that are missing at the end, and in `Content-Length`.
    corrupt: bool = False  #: Whether the first byte is wrong.
    ignore_range: bool = False
    block_seconds: float = 0.0  #: The pause before each block of 64 KiB.
    body: bytes | None = None  #: In place of the right one.


@dataclass(frozen=True)
class Request:
    """A request that the hub got."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Repository:
    """The files of each commit, and the commit of each branch and tag."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)


class FakeHub:
    """The repositories of a hub, its faults and what it was asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent_bytes = 0
        self.endpoint = ""
        self.mirror = ""  # Another name of the same host.
        self._changed = Condition()

    def add(
        self, repository: str, files: Mapping[str, bytes] | Path, revision: str = "main"
    ) -> str:
        """Make the files the newest commit of a branch; return the commit."""
        if isinstance(files, Path):
            files = {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()}

        stored = self.repositories.setdefault(repository, Repository())
        names = "".join(f"{name}:{digest(name, data)};" for name, data in sorted(files.items()))
        commit = hashlib.sha1(f"{repository} {names}".encode()).hexdigest()
        stored.commits[commit] = dict(files)
        stored.revisions[revision] = commit
        return commit

    def misbehave(self, path: str = "", **fault: Any) -> Fault:  # noqa: ANN401
        """Add a fault; earlier ones take precedence."""
        self.faults.append(Fault(path, **fault))
        return self.faults[-1]

    def paths(self, method: str = "GET") -> list[str]:
        """Return the paths of the requests so far."""
        return [request.path for request in self.requests if request.method == method]

    def wait_for(self, name: str) -> None:
        """Wait, for as long as the test may take, until a file was asked for."""
        with self._changed:
            self._changed.wait_for(lambda: any(path.endswith(name) for path in self.paths()))

    def take_fault(self, request: Request, *, has_body: bool) -> Fault:
        """Record a request, and return what to do wrong.

        What is wrong with a body does not apply to a redirection, which has none.
        """
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            for fault in self.faults:
                is_meant = fault.method == request.method and re.search(fault.path, request.path)
                if is_meant and fault.times > 0 and (has_body or fault.status is not None):
                    fault.times -= 1
                    return fault

        return Fault()

    def count(self, nbytes: int) -> None:
        """Add to the bytes that were sent."""
        with self._changed:
            self.sent_bytes += nbytes


def digest(name: str, data: bytes) -> str:
    """Return the hash by which the hub knows a file."""
    if LFS.fullmatch(name):
        return hashlib.sha256(data).hexdigest()

    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    """Run a hub for the duration of the context."""
    hub = FakeHub()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    hub.mirror = f"http://localhost:{server.server_port}"
    with ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever, 0.01)
        try:
            yield hub
        finally:
            server.shutdown()
            server.server_close()


@contextmanager
def hub_in_use(directory: Path) -> Iterator[FakeHub]:
    """Run a hub which is the one that is asked, with an empty cache below `directory`."""
    with running_hub() as hub, pytest.MonkeyPatch.context() as environment:
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
            environment.delenv(name, raising=False)
        environment.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
        environment.setenv("HF_HOME", str(directory / "hf"))
        environment.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ignore clients that have gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with suppress(ConnectionError):
            self._answer()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        request = Request(self.command, path, dict(self.headers))
        fault = self.hub.take_fault(request, has_body=not self._is_redirected(path))
        if fault.status is not None:
            self._send(fault.status, fault.body or b"{}", fault.headers, Fault())
        elif match := _API.fullmatch(path):
            self._answer_api(match["repository"], match["kind"], match["rest"], fault)
        elif match := _RESOLVE.fullmatch(path):
            self._answer_file(match["repository"], match["revision"], match["name"], fault)
        else:
            self._not_found("RepoNotFound")

    def _answer_api(self, repository: str, kind: str, revision: str, fault: Fault) -> None:
        stored = self.hub.repositories.get(repository)
        if stored is None:
            return self._not_found("RepoNotFound")

        commit = stored.revisions.get(revision, revision)
        if commit not in stored.commits:
            return self._not_found("RevisionNotFound")

        entries = [_entry(name, data) for name, data in stored.commits[commit].items()]
        listing: Any = {"id": repository, "sha": commit, "siblings": entries}
        if kind == "tree":
            listing = [_tree_entry(entry) for entry in entries]
        body = json.dumps(listing).encode() if fault.body is None else fault.body
        return self._send(200, body, {"Content-Type": "application/json"}, fault)

    def _answer_file(self, repository: str, revision: str, name: str, fault: Fault) -> None:
        stored = self.hub.repositories.get(repository)
        if stored is None:
            return self._not_found("RepoNotFound")

        commit = stored.revisions.get(revision, revision)
        if commit not in stored.commits:
            return self._not_found("RevisionNotFound")

        data = stored.commits[commit].get(name)
        if data is None:
            return self._not_found("EntryNotFound")

        etag = f'"{digest(name, data)}"'
        headers = {"X-Repo-Commit": commit, "ETag": etag, "Accept-Ranges": "bytes"}
        if self._is_redirected(unquote(urlsplit(self.path).path)):
            headers |= {"X-Linked-Etag": etag, "X-Linked-Size": str(len(data))}
            headers["Location"] = self.hub.mirror + self.path
            return self._send(302, b"", headers, Fault())

        return self._send(200, data, headers, fault)

    def _is_redirected(self, path: str) -> bool:
        match = _RESOLVE.fullmatch(path)
        is_at_mirror = (self.headers["Host"] or "").startswith("localhost")
        return bool(match and LFS.fullmatch(match["name"]) and not is_at_mirror)

    def _not_found(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code, "X-Error-Message": "not found"}, Fault())

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], fault: Fault) -> None:
        headers = dict(headers)
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match and not fault.ignore_range and status == 200 else 0
        body = body[: len(body) - fault.shorten]
        if fault.corrupt and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        if start:
            status = 206 if start < len(body) else 416
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            body = body[start:]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self._write(body, fault)

    def _write(self, body: bytes, fault: Fault) -> None:
        end = len(body) if fault.cut_after is None else min(fault.cut_after, len(body))
        for offset in range(0, end, _BLOCK_BYTES):
            if fault.block_seconds:
                time.sleep(fault.block_seconds)
            block = body[offset : min(offset + _BLOCK_BYTES, end)]
            self.wfile.write(block)
            self.wfile.flush()
            self.hub.count(len(block))
        if fault.cut_after is not None:
            self.close_connection = True


def _entry(name: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
    if LFS.fullmatch(name):
        pointer = f"oid sha256:{digest(name, data)}\nsize {len(data)}\n".encode()
        entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()
        entry["lfs"] = {"sha256": digest(name, data), "size": len(data), "pointerSize": 134}
    else:
        entry["blobId"] = digest(name, data)
    return entry


def _tree_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    tree = {"type": "file", "path": entry["rfilename"], "size": entry["size"]}
    tree["oid"] = entry["blobId"]
    if "lfs" in entry:
        tree["lfs"] = {**entry["lfs"], "oid": entry["lfs"]["sha256"]}
    return tree
