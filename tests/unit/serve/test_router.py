"""The arguments of `Router`, and its streams over a scripted server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx2
import pytest

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
