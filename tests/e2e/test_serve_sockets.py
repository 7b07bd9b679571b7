"""Real sockets: slow and rude clients, draining, and hypercorn with trio."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.raw_http import read_all, request_of
from tests.e2e.serve_process import ServerProcess, run_server

pytestmark = pytest.mark.timeout(120)
SERVERS = ["uvicorn", "hypercorn-asyncio", "hypercorn-trio"]
ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
    "ignore_eos": True,
    "max_tokens": 1900,
    "stream": True,
}


def options_of(name: str) -> list[str]:
    server, _, backend = name.partition("-")
    return ["--server", server, "--backend", backend or "asyncio"]


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of the bundled model with short time limits."""
    directory = tmp_path_factory.mktemp("server")
    limits = ["--header-timeout", "0.5", "--body-timeout", "0.5", "--max-header-size", "8000"]
    with run_server(directory, *options_of(request.param), *limits) as process:
        yield process


def test_chat_over_a_socket(server: ServerProcess) -> None:
    fields = {"messages": [{"role": "user", "content": "What is the capital of Italy?"}]}
    with server.http() as client:
        whole = client.post("/v1/chat/completions", json={**fields, "temperature": 0})
        streamed = client.post("/v1/chat/completions", json={**fields, "stream": True})

    assert "Rome" in whole.text
    assert streamed.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_frees_its_pages(server: ServerProcess, stream: bool) -> None:
    with server.connect() as connection:
        connection.sendall(request_of({**ENDLESS, "stream": stream}))
        server.wait_for("vllm:num_requests_running", 1)

    server.wait_for("vllm:num_requests_running", 0)
    server.wait_for("vllm:kv_cache_usage_perc", 0)


def test_client_that_resets_its_connection_frees_its_pages(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(request_of(ENDLESS))
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    server.wait_for("vllm:num_requests_running", 0)
    server.wait_for("vllm:kv_cache_usage_perc", 0)


def test_slow_headers_end_the_connection(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: loc")
        answer = read_all(connection)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def test_slow_body_is_408(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(request_of({})[:-1])
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /health HTTP/1.1\r\ncontent-length: -1\r\nhost: localhost\r\n\r\n",
        b"nothing of the kind\r\n\r\n",
    ],
)
def test_malformed_requests_are_refused(server: ServerProcess, data: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(data)
        answer = read_all(connection)

    assert answer == b"" or answer.split()[1] in (b"400", b"431")


def test_large_headers_are_refused(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            connection.sendall(b"a" * 100_000_000)


def test_other_hosts_are_refused(server: ServerProcess) -> None:
    with server.http(headers={"host": "evil.example"}) as client:
        assert client.get("/health").status_code == 421


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.sampled(1)
def test_sigterm_finishes_the_running_requests(tmp_path: Path, name: str) -> None:
    with run_server(tmp_path, *options_of(name)) as server:
        with server.connect() as connection, server.http() as client:
            connection.sendall(request_of(ENDLESS, headers={"connection": "close"}))
            connection.recv(100)
            server.process.send_signal(signal.SIGTERM)
            while (ready := client.get("/ready")).status_code == 200:
                pass

            rejected = client.post("/v1/chat/completions", json=ENDLESS)
            answer = read_all(connection)

        code = server.process.wait()

    assert ready.json()["status"] == "draining"
    assert rejected.status_code == 503
    assert rejected.headers["retry-after"]
    assert b'"finish_reason":"length"' in answer
    assert b"data: [DONE]" in answer
    assert code == 0


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.sampled(1)
def test_sigterm_ends_the_server_although_a_client_does_not_read(tmp_path: Path, name: str) -> None:
    limits = ["--drain-timeout", "0.5", "--write-timeout", "2"]
    with (
        run_server(tmp_path, *options_of(name), *limits) as server,
        socket.socket() as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request_of({**ENDLESS, "n": 16}))
        server.wait_for("vllm:num_requests_running", 16)
        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(60) == 0


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.sampled(1)
def test_a_second_signal_ends_the_server_at_once(tmp_path: Path, name: str) -> None:
    with (
        run_server(tmp_path, *options_of(name)) as server,
        server.connect() as connection,
        server.http() as client,
    ):
        connection.sendall(request_of(ENDLESS))
        connection.recv(100)
        server.process.send_signal(signal.SIGTERM)
        while client.get("/ready").status_code == 200:
            pass

        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait()

    assert code == -signal.SIGTERM


def test_key_of_the_environment_is_required_and_not_logged(tmp_path: Path) -> None:
    environment = {**os.environ, "AIOMLC_API_KEY": "secret-key"}
    with run_server(tmp_path, "mock://echo", environment=environment) as server:
        with server.http() as client:
            refused = client.get("/v1/models")
            allowed = client.get("/v1/models", headers={"authorization": "Bearer secret-key"})

        assert "secret-key" not in server.log.read_text()

    assert (refused.status_code, allowed.status_code) == (401, 200)
