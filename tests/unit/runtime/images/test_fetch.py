"""Images are fetched from allowed hosts only, within limits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from anyio import create_task_group, move_on_after, sleep

from aiomlc.errors import BadRequestError, MissingPackageError
from aiomlc.runtime.images.addresses import resolve_host
from aiomlc.runtime.images.fetch import ImageFetcher
from aiomlc.runtime.images.limits import ImageLimits
from tests.unit.runtime.images.file_server import answer, file_server, redirect

LIMITS = ImageLimits(max_bytes=1000, fetch_seconds=5.0)
PARAM = "messages[0].content[1]"
CONTENT = b"an image"


class Names:
    """A resolver; each name has its addresses, one list after the other."""

    def __init__(self, **addresses: Sequence[Sequence[str]]) -> None:
        self._addresses = {name: list(values) for name, values in addresses.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._addresses:
            return await resolve_host(host, port)

        answers = self._addresses[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def fetch(
    url: str,
    *allowed: str,
    limits: ImageLimits = LIMITS,
    names: Names | None = None,
) -> bytes:
    fetcher = ImageFetcher(limits, allowed, (names or Names()).resolve)
    return await fetcher.fetch(url, PARAM)


async def refusal(url: str, *allowed: str, names: Names | None = None) -> str:
    with pytest.raises(BadRequestError) as caught:
        await fetch(url, *allowed, names=names)

    assert caught.value.param == PARAM
    assert str(caught.value).startswith(f"{PARAM}: cannot fetch ")
    return str(caught.value)


async def test_the_content_of_an_allowed_url_is_returned() -> None:
    async with file_server(a=answer(200, CONTENT)) as server:
        assert await fetch(f"http://127.0.0.1:{server.port}/a", "127.0.0.1") == CONTENT

    (request,) = server.requests
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in request
    assert b"Accept-Encoding: identity" in request


async def test_nothing_is_asked_unless_it_is_allowed() -> None:
    async with file_server(a=answer(200, CONTENT)) as server:
        for host in ("127.0.0.1", "localhost"):
            reason = await refusal(f"http://{host}:{server.port}/a")
            assert "is not allowed" in reason

    assert server.requests == []


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "017700000001"),
        *("127.1", "0", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "0.0.0.0"),
        *("0177.0.0.1", "0x7f.1"),
    ],
)
async def test_no_form_of_a_private_address_is_a_way_around_the_rules(host: str) -> None:
    async with file_server(a=answer(200, CONTENT)) as server:
        await refusal(f"http://{host}:{server.port}/a", "*")

    assert server.requests == []


async def test_a_name_is_checked_as_it_is_resolved() -> None:
    """The older rule for names makes straße strasse, which is another host."""
    names = Names(**{"xn--strae-oqa.example": [["127.0.0.1"]], "strasse.example": [["127.0.0.1"]]})
    async with file_server(a=answer(200, CONTENT)) as server:
        url = f"http://straße.example:{server.port}/a"
        allowed = "xn--strae-oqa.example"
        assert await fetch(url, allowed, "127.0.0.1", names=names) == CONTENT
        assert "is not allowed" in await refusal(url, "strasse.example", "127.0.0.1", names=names)

    assert len(server.requests) == 1


async def test_a_name_at_a_private_address_is_refused() -> None:
    names = Names(evil=[["127.0.0.1"]], mixed=[["93.184.216.34", "127.0.0.1"]])
    async with file_server(a=answer(200, CONTENT)) as server:
        for host in ("evil", "mixed"):
            reason = await refusal(f"http://{host}:{server.port}/a", "*", names=names)
            assert "not public" in reason

    assert server.requests == []


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """There is no second resolution: the connection goes to an address that was checked."""
    names = Names(rebinding=[["192.0.2.1"], ["127.0.0.1"]])
    limits = ImageLimits(fetch_seconds=0.2)
    async with file_server(a=answer(200, CONTENT)) as server:
        url = f"http://rebinding:{server.port}/a"
        with pytest.raises(BadRequestError):
            await fetch(url, "rebinding", "192.0.2.1", limits=limits, names=names)
        assert names.asked == ["rebinding"]
        assert "not public" in await refusal(url, "rebinding", names=names)

    assert server.requests == []


async def test_each_redirect_is_checked() -> None:
    async with file_server() as server:
        here = f"http://127.0.0.1:{server.port}"
        targets = [
            "http://169.254.169.254/",
            f"http://localhost:{server.port}/b",
            "//10.0.0.1/",
            "file:///etc/passwd",
            "ftp://127.0.0.1/",
            "http://[::1]/",
            "http://user@127.0.0.1/",
        ]
        answers = {f"/{n}": redirect(target) for n, target in enumerate(targets)}
        server.answers = {**answers, "/b": answer(200, CONTENT)}
        for index in range(len(targets)):
            await refusal(f"{here}/{index}", "127.0.0.1")

    assert len(server.requests) == len(targets)
    assert not any(b"GET /b" in request for request in server.requests)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_within_the_allowed_hosts_are_followed(status: int) -> None:
    async with file_server(a=redirect("/b?c=1", status)) as server:
        server.answers = {**server.answers, "/b?c=1": answer(200, CONTENT)}
        assert await fetch(f"http://127.0.0.1:{server.port}/a#d", "127.0.0.1") == CONTENT


async def test_redirects_end() -> None:
    async with file_server(a=redirect("/a")) as server:
        reason = await refusal(f"http://127.0.0.1:{server.port}/a", "127.0.0.1")

    assert "more than 3 redirects" in reason
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (answer(404, b"none"), "status 404"),
        (answer(200, bytes(1001)), "at most 1000 bytes"),
        (answer(200, b"", content_length="999999999999999"), "at most 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2000), "at most 1000 bytes"),
        (answer(200, b"x", content_encoding="gzip"), "encoded as 'gzip'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "cannot fetch"),
        (b"no HTTP at all\r\n\r\n", "cannot fetch"),
        (answer(302, b""), "status 302"),
    ],
)
async def test_an_answer_that_is_no_image_within_the_limits_is_refused(
    response: bytes, reason: str
) -> None:
    async with file_server(a=response) as server:
        assert reason in await refusal(f"http://127.0.0.1:{server.port}/a", "127.0.0.1")


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http:///a", "http://127.0.0.1:0/", "http://127.0.0.1:99999/"),
        *("http://user@127.0.0.1/", "http://user:word@127.0.0.1/", "http://127.0.0.1\\@x/"),
        *("http://127.0.0.1%00.example.com/", "http://[::1/", "http://127.0.0.1/" + "a" * 9000),
        *("http://127.0.0.1\r\nX: y/", "http://127.0.0 .1/"),
    ],
)
async def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    await refusal(url, "127.0.0.1", "*")


async def test_a_slow_answer_ends_at_the_limit_of_time() -> None:
    limits = ImageLimits(fetch_seconds=0.2)
    async with file_server(a=answer(200, b"", content_length="9")) as server:
        server.hangs = True
        with pytest.raises(BadRequestError, match=r"takes more than 0\.2 s"):
            await fetch(f"http://127.0.0.1:{server.port}/a", "127.0.0.1", limits=limits)


async def test_a_cancelled_fetch_closes_its_connection() -> None:
    async with file_server(a=answer(200, b"", content_length="9")) as server:
        server.hangs = True
        async with create_task_group() as group:
            group.start_soon(fetch, f"http://127.0.0.1:{server.port}/a", "127.0.0.1")
            with move_on_after(5):
                while not server.requests:  # noqa: ASYNC110 - of another task.
                    await sleep(0.001)
            group.cancel_scope.cancel()

    assert len(server.requests) == 1


async def test_a_server_that_refuses_connections_is_named() -> None:
    async with file_server() as server:
        port = server.port

    assert "cannot fetch" in await refusal(f"http://127.0.0.1:{port}/a", "127.0.0.1")


async def test_ipv6_is_asked_if_it_is_allowed() -> None:
    async with file_server("::1", a=answer(200, CONTENT)) as server:
        assert await fetch(f"http://[::1]:{server.port}/a", "::1") == CONTENT


async def test_a_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)

    with pytest.raises(MissingPackageError, match=r"pip install 'aiomlc\[vision\]'"):
        await fetch("http://127.0.0.1/", "127.0.0.1")
