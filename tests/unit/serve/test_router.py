"""The arguments of `Router`, and its streams over a scripted server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import httpx2
import orjson
import pytest
from anyio import (
    BusyResourceError,
    create_task_group,
    fail_after,
    sleep_forever,
    wait_all_tasks_blocked,
)

from aiomlc import BadRequestError, RemoteServerError
from aiomlc.api.protocol.completion import Completion
from aiomlc.serve import Router, ServerOptions

CHUNK = {
    "id": "id",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": "b", "finish_reason": None}],
}


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"hosts": []}, "hosts"),
        ({"hosts": "127.0.0.1"}, "hosts"),
        ({"hosts": ["a", "b"], "ports": [1]}, "ports"),
        ({"ports": [0]}, "ports"),
        ({"ports": ["80"]}, "ports"),
        ({"hosts": ["a b"]}, "hosts"),
        ({"hosts": ["a/b"]}, "hosts"),
        ({"hosts": [""]}, "hosts"),
        ({"hosts": ["a:80"]}, "hosts"),
        ({"hosts": [7]}, "hosts"),
        ({"num_gpus": [1, 1]}, "num_gpus"),
        ({"router_mode": "random"}, "router_mode"),
        ({"pd_balance_factor": 1.0}, "pd_balance_factor"),
        ({"pd_balance_factor": -0.1}, "pd_balance_factor"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        Router("model", **arguments)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:1"),
        ("[fe80::1]", "http://[fe80::1]:1"),
        ("10.0.0.1", "http://10.0.0.1:1"),
        ("gpu-1.local", "http://gpu-1.local:1"),
    ],
)
def test_a_host_is_a_name_or_an_address(host: str, url: str) -> None:
    assert Router("m", hosts=[host], ports=[1]).servers[0].url == url


@pytest.mark.parametrize("peer", ["10.0.0.1:8000", "http://host:1/", "ftp://host"])
def test_a_peer_must_be_an_address(peer: str) -> None:
    with pytest.raises(BadRequestError, match="must be like http"):
        ServerOptions(microserving_peers=(peer,))


def scripted(answer: Callable[[httpx2.Request], httpx2.Response]) -> Router:
    return Router("m", transport=httpx2.MockTransport(answer), router_mode="round-robin")


# httpx2 leaves generators to the garbage collector.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.parametrize(
    ("response", "message", "code"),
    [
        (httpx2.Response(200, text=": ping\n\n"), "ended before its last event", None),
        (
            httpx2.Response(200, text='data: {"error": {"message": "lost", "code": "x"}}\n\n'),
            "lost",
            "x",
        ),
        (httpx2.Response(200, text='data: {"error": "lost"}\n\n'), "lost", None),
        (httpx2.Response(200, text="data: no JSON\n\n"), "returns: 'no JSON'", None),
        (httpx2.Response(200, text="data: [1]\n\n"), r"returns: \[1\]", None),
        (httpx2.Response(200, text='data: {"choices": 1}\n\n'), "returns: {'choices': 1}", None),
        (httpx2.Response(502, text="no JSON"), "answered 502: no JSON", None),
        (httpx2.Response(502, text="[]"), r"answered 502: \[\]", None),
        (httpx2.Response(500, json={"error": "broken"}), "answered 500: broken", None),
        (httpx2.Response(500, json={"error": {"code": 7}}), "answered 500: {'code': 7}", None),
        (httpx2.Response(503, json={"error": {"message": "full", "code": "y"}}), "full", "y"),
    ],
)
async def test_a_failing_server_is_a_typed_error(
    response: httpx2.Response, message: str, code: str | None
) -> None:
    async with scripted(lambda request: response) as router:
        with pytest.raises(RemoteServerError, match=message) as caught:
            await anext(router.handle_completion({"prompt": "a"}, "id"))

        assert caught.value.code == code
        assert caught.value.url == "http://127.0.0.1:8080/v1/completions"
        assert router.servers[0].num_running == 0


async def test_an_invalid_request_is_named_whatever_the_form_of_the_error() -> None:
    answer = httpx2.Response(400, json={"error": {"message": "no", "param": ["a"]}})
    async with scripted(lambda request: answer) as router:
        with pytest.raises(BadRequestError, match="no") as caught:
            await anext(router.handle_completion({"prompt": "a"}, "id"))

    assert caught.value.param is None


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/tokenize", {"tokens": "abc"}),
        ("/tokenize", {"tokens": [1, -1]}),
        ("/tokenize", {}),
        ("/microserving/prep_recv", {"kv_append_metadata": "", "prefix_matched_length": "0"}),
        ("/microserving/prep_recv", []),
        ("/microserving/remote_send", "sent"),
    ],
)
async def test_an_answer_of_another_form_is_a_typed_error(path: str, answer: object) -> None:
    right: dict[str, object] = {
        "/tokenize": {"tokens": [1, 2, 3]},
        "/microserving/prep_recv": {"kv_append_metadata": "", "prefix_matched_length": 0},
    }

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=({**right, path: answer})[request.url.path])

    transport = httpx2.MockTransport(respond)
    async with Router("m", hosts=["a", "b"], ports=[1, 2], transport=transport) as router:
        with pytest.raises(RemoteServerError, match="is not what this endpoint returns") as caught:
            await anext(router.handle_completion({"prompt": "a"}, "id"))

        assert caught.value.url.endswith(path)
        assert [server.num_running for server in router.servers] == [0, 0]


async def test_leaving_the_stream_closes_that_of_a_subclass() -> None:
    ended: list[str] = []

    class Own(Router):
        async def translate_request(
            self, request: Mapping[str, Any], request_id: str
        ) -> AsyncGenerator[Completion]:
            try:
                while True:
                    yield Completion.model_validate(CHUNK)
            finally:
                ended.append(request_id)

    async with Own("m") as router, router.handle_completion({"prompt": "a"}, "id") as chunks:
        assert (await anext(chunks)).choices[0].text == "b"
    assert ended == ["id"]


def event(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": None}
    return b"data: " + orjson.dumps({**CHUNK, "choices": [choice]})


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_only_line_feeds_end_lines(size: int, end: bytes) -> None:
    texts = ["a\u2028b", "c\u2029\x85d\x0b\x0c", "e\u00e9"]
    body = end.join([*map(event, texts), b": ping", b"data: [DONE]", b""])

    class Parts(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes]:
            for start in range(0, len(body), size):
                yield body[start : start + size]

    async with scripted(lambda _: httpx2.Response(200, stream=Parts())) as router:
        chunks = [chunk async for chunk in router.handle_completion({"prompt": "a"}, "id")]

    assert [chunk.choices[0].text for chunk in chunks] == texts


class Silent(httpx2.AsyncByteStream):
    """A body whose second part never comes."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self.is_closed = False

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for part in self.parts:
            yield part
        await sleep_forever()

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("while_opening", [True, False])
async def test_closing_ends_the_iteration_of_another_task(while_opening: bool) -> None:
    body = Silent([event("a") + b"\n\n"])
    chunks: list[Completion] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if while_opening:
            await sleep_forever()
        return httpx2.Response(200, stream=body)

    router = Router("m", transport=httpx2.MockTransport(answer), router_mode="round-robin")
    async with router:
        stream = router.handle_completion({"prompt": "a"}, "id")

        async def read() -> None:
            chunks.extend([chunk async for chunk in stream])

        with fail_after(10):
            async with create_task_group() as tasks:
                tasks.start_soon(read)
                await wait_all_tasks_blocked()
                with pytest.raises(BusyResourceError):
                    await anext(stream)
                await stream.aclose()

        assert router.servers[0].num_running == 0
        assert body.is_closed != while_opening
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_servers_that_prepare_a_prompt_are_busy() -> None:
    """Requests that start together go to different servers."""
    asked: list[str] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        await sleep_forever()
        raise AssertionError

    hosts = ["prefill", "a", "b"]
    transport = httpx2.MockTransport(answer)
    async with (
        Router("m", hosts=hosts, ports=[1, 2, 3], transport=transport) as router,
        create_task_group() as tasks,
    ):
        for name in "xyzw":
            stream = router.handle_completion({"prompt": name}, name)
            tasks.start_soon(anext, stream)
        await wait_all_tasks_blocked()
        assert sorted(asked) == ["a", "a", "b", "b"]
        assert [server.num_running for server in router.servers] == [0, 2, 2]
        tasks.cancel_scope.cancel()

    assert [server.num_running for server in router.servers] == [0, 0, 0]
