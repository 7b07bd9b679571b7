"""Random and broken HTTP: each exchange ends in a typed answer or a closed connection.

`AIOMLC_EXAMPLES=3000` tries that many random requests and cuts exchanges after every byte, which
takes some minutes; `AIOMLC_SEED` chooses others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
        if data.startswith(b"PRI * HTTP/2.0\r\n") and not _is_uvicorn(server):
            return []  # hypercorn speaks HTTP/2.

        raise AssertionError(f"seed {seed}: {data[:500]!r}: {error}") from error

    return answers


def test_random_requests_end_in_typed_answers(server: ServerProcess) -> None:
    number = _NUM_EXAMPLES if _is_uvicorn(server) else _NUM_EXAMPLES // 4
    seeds = range(_SEED, _SEED + number)
    with ThreadPoolExecutor(_NUM_CLIENTS) as executor:
        answers = list(executor.map(lambda seed: _exchange_random(server, seed), seeds))

    statuses = Counter(answer.status for each in answers for answer in each)
    assert {200, 400, 404} <= statuses.keys()


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
