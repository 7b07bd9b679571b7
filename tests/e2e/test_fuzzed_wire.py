"""Random and broken HTTP: each exchange ends in a typed answer or a closed connection.

`AIOMLC_EXAMPLES=3000` tries that many random requests and cuts exchanges after every byte, which
takes some minutes; `AIOMLC_SEED` chooses others.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from tests.e2e.random_http import random_request
from tests.e2e.raw_http import (
    Answer,
    assert_typed,
    exchange,
    leave_after,
    read_all,
    request_of,
)
from tests.e2e.serve_process import ServerProcess, run_server

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "200"))
_SEED = int(os.environ.get("AIOMLC_SEED", "0"))
_NUM_CLIENTS = 16
# Of the bytes of an exchange, each so many-th is a place to cut it.
_STEP = 1 if _NUM_EXAMPLES >= 1000 else 7
_SERVERS = {"uvicorn": "asyncio", "hypercorn": "trio"}
_TIMEOUTS = ("--header-timeout", "0.5", "--body-timeout", "0.5", "--max-header-size", "8000")
_CHAT = {
    "messages": [{"role": "user", "content": "Who are you?"}],
    "max_tokens": 2,
    "temperature": 0,
}

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(180 + _NUM_EXAMPLES)]


@pytest.fixture(scope="module", params=_SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of the bundled model with short time limits."""
    name = request.param
    options = ("--server", name, "--backend", _SERVERS[name], *_TIMEOUTS)
    with run_server(tmp_path_factory.mktemp(name), *options) as process:
        yield process


@pytest.fixture(autouse=True)
def idle_at_the_end(server: ServerProcess) -> Iterator[None]:
    """Check after each test that nothing is left, nothing was logged, and the server answers."""
    yield
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        server.wait_for(f"aiomlc:{gauge}", 0)

    server.wait_for("aiomlc_http_requests_running", 0)

    assert_typed(exchange(server, request_of(_CHAT))[0])
    log = server.log.read_text()
    assert "Traceback" not in log
    assert "ERROR" not in log


def _is_uvicorn(server: ServerProcess) -> bool:
    # hypercorn answers what is not HTTP without a body.
    return "hypercorn" not in str(server.process.args)


def _exchange_random(server: ServerProcess, seed: int) -> list[Answer]:
    data = random_request(Random(seed))
    try:
        answers = exchange(server, data)
        for answer in answers:
            assert_typed(answer, may_be_empty=not _is_uvicorn(server))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {data[:500]!r}: {error}") from error

    return answers


def test_random_requests_end_in_typed_answers(server: ServerProcess) -> None:
    number = _NUM_EXAMPLES if _is_uvicorn(server) else _NUM_EXAMPLES // 4
    seeds = range(_SEED, _SEED + number)
    with ThreadPoolExecutor(_NUM_CLIENTS) as executor:
        answers = list(executor.map(lambda seed: _exchange_random(server, seed), seeds))

    statuses = Counter(answer.status for each in answers for answer in each)
    assert {200, 400, 404} <= statuses.keys()


_BODY = json.dumps(_CHAT).encode()
_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY)
_LENGTH = b"content-length: %d\r\n" % len(_BODY)
_HOST = b"host: localhost\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + _HOST + b"content-type: application/json\r\n"
#: Requests after which a connection must be closed, and the status of their one answer.
_CLOSING: dict[str, tuple[bytes, int]] = {
    "two lengths": (_POST + b"transfer-encoding: chunked\r\n" + _LENGTH + b"\r\n" + _CHUNKS, 400),
    "another version": (b"GET /health HTTP/2.0\r\n" + _HOST + b"\r\n", 505),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "an unknown expectation": (_POST + _LENGTH + b"expect: 200-ok\r\n\r\n" + _BODY, 417),
    "too many bytes": (_POST + b"content-length: 99999999\r\n\r\n", 413),
    "the upgrade to HTTP/2": (
        b"GET /health HTTP/1.1\r\n" + _HOST + b"connection: upgrade, http2-settings, close\r\n"
        b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        200,
    ),
    **{
        f"close {path}": (
            b"GET %b HTTP/1.1\r\n" % path.encode() + _HOST + b"connection: close\r\n\r\n",
            status,
        )
        for path, status in {
            "/": 200,
            "/playground/app.js": 200,
            "/health": 200,
            "/metrics": 200,
            "/v1/models": 200,
            "/nowhere": 404,
        }.items()
    },
}


@pytest.mark.parametrize("name", _CLOSING)
def test_a_connection_is_closed_after_its_last_answer(server: ServerProcess, name: str) -> None:
    request, status = _CLOSING[name]
    with server.connect() as connection:
        connection.sendall(request)
        answers = read_all(connection)  # Until the server closes.

    assert answers.startswith(b"HTTP/1.1 %d " % status)


def test_no_further_request_is_read_after_two_lengths(server: ServerProcess) -> None:
    request, _ = _CLOSING["two lengths"]
    with server.connect() as connection:
        connection.sendall(request + b"GET /health HTTP/1.1\r\n" + _HOST + b"\r\n")
        assert read_all(connection).count(b"HTTP/1.1 ") == 1


def test_an_endless_body_is_cut(server: ServerProcess) -> None:
    part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    num_sent = 0
    with server.connect() as connection, suppress(OSError):
        connection.sendall(_POST + b"transfer-encoding: chunked\r\n\r\n")
        while num_sent < 2000:
            connection.sendall(part)
            num_sent += 1

    assert num_sent < 1000


def test_compressed_bodies_are_refused_by_the_name_of_their_header(server: ServerProcess) -> None:
    head = b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n"
    (answer,) = exchange(server, _POST + head + b"\x1f\x8b\x08\x00")

    assert answer.status == 415
    assert b"Content-Encoding: is not supported, got 'gzip'" in answer.body


def test_a_request_gets_one_answer(server: ServerProcess) -> None:
    """An answer that needs no body is not followed by one to the rest of the body."""
    head = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\n"
    too_slow = exchange(server, head + b"content-length: 9\r\n\r\na", until_closed=True)
    chunks = b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n"
    with server.connect() as connection:
        connection.sendall(head + chunks)
        first = connection.recv(65536)
        connection.sendall(b"no chunk\r\n")
        rest = read_all(connection)

    assert [answer.status for answer in too_slow] == [404]
    assert (first + rest).count(b"HTTP/1.1") == 1


def test_headers_have_a_limit_also_if_they_come_at_once(server: ServerProcess) -> None:
    if not _is_uvicorn(server):
        pytest.skip("hypercorn accepts what it reads at once")

    data = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: %b\r\n\r\n"
    assert exchange(server, data % (b"a" * 7000))[0].status == 200
    assert exchange(server, data % (b"a" * 13_000))[0].status == 400


def _cut_request(server: ServerProcess, number: int) -> None:
    data = request_of(_CHAT, headers={"connection": "close"})
    with server.connect() as connection:
        connection.sendall(data[:number])
        if number % 2:  # Reset; the others end as usual.
            leave_after(connection, 0)


def test_requests_that_are_cut_after_each_byte(server: ServerProcess) -> None:
    size = len(request_of(_CHAT, headers={"connection": "close"}))
    with ThreadPoolExecutor(_NUM_CLIENTS) as executor:
        list(executor.map(lambda number: _cut_request(server, number), range(size + 1)))


def test_answers_that_are_left_after_each_byte(server: ServerProcess) -> None:
    request = request_of({**_CHAT, "stream": True}, headers={"connection": "close"})
    size = 0

    def read(number: int) -> int:
        with server.connect() as connection:
            connection.sendall(request)
            return leave_after(connection, number)

    size = read(2**20)
    with ThreadPoolExecutor(_NUM_CLIENTS) as executor:
        places = range(_SEED % _STEP, size, _STEP)
        for place, received in zip(places, executor.map(read, places), strict=True):
            assert min(place, size // 2) <= received <= place  # Chunks may be joined.


def _drip(server: ServerProcess, data: bytes, first: int) -> bytes:
    """Send bytes one by one, of which `first` come at once, until the server answers or closes."""
    with server.connect() as connection:
        connection.sendall(data[:first])
        connection.settimeout(0.05)
        for index in range(first, len(data)):
            try:
                connection.sendall(data[index : index + 1])
                return connection.recv(65536)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):  # Closed just before the last byte.
                return b""

    raise AssertionError("the server has waited for everything")


def test_requests_that_drip_end_with_the_time_limits(server: ServerProcess) -> None:
    data = request_of({"prompt": "a" * 500}, "/tokenize")
    in_headers, in_body = _drip(server, data, 10), _drip(server, data, data.index(b"{") + 1)
    assert in_headers.split()[1:2] in ([], [b"408"])
    assert in_body.split()[1] == b"408"
    assert in_headers or not _is_uvicorn(server)
