"""Two servers, of which one prefills and the other decodes: MLC LLM's microserving and router."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any

import anyio
import pytest

from aiomlc import BadRequestError, MLCEngine, RemoteServerError
from aiomlc.api.protocol.completion import Completion
from aiomlc.serve import Router
from tests.e2e.serve_process import ServerProcess, run_server

PROMPT = "Rosa was a fox who lived in a small house near the sea. " * 12
KEY = "secret"
PEER_KEY = "another-secret"
HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ...]]:
    """Run a server that prefills, and one that decodes."""
    with ExitStack() as stack:
        keys = ("--api-key", KEY, "--microserving-key", PEER_KEY)
        options = (*keys, "--microserving-peers")
        decode = run_server(tmp_path_factory.mktemp("d"), *options, "http://127.0.0.1:1")
        second = stack.enter_context(decode)
        prefill = run_server(tmp_path_factory.mktemp("p"), *options, second.url)
        yield stack.enter_context(prefill), second


def make_router(*servers: ServerProcess, **options: Any) -> Router:  # noqa: ANN401
    ports = [server.port for server in servers]
    hosts = ["127.0.0.1"] * len(servers)
    return Router("pebble", hosts=hosts, ports=ports, api_key=KEY, **options)


async def collect(router: Router, fields: Mapping[str, Any]) -> tuple[str, list[Any]]:
    chunks = [chunk async for chunk in router.handle_completion(fields, "some-id")]
    choices = [chunk.choices[0] for chunk in chunks]
    lists = [choice.logprobs.token_logprobs for choice in choices if choice.logprobs is not None]
    return "".join(choice.text for choice in choices), list(chain.from_iterable(lists))


def fields_of(prompt: str | list[int]) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 12, "temperature": 0.7, "seed": 5, "logprobs": 2}


async def test_two_servers_answer_like_one_engine(servers: tuple[ServerProcess, ...]) -> None:
    prompts: list[str | list[int]] = [PROMPT, PROMPT[:70], [40], PROMPT]
    with MLCEngine() as engine:
        answers = [engine.completions.create(**fields_of(prompt)).choices[0] for prompt in prompts]
    expected = [
        (answer.text, answer.logprobs and answer.logprobs.token_logprobs) for answer in answers
    ]

    for options in ({}, {"pd_balance_factor": 0.4}, {"router_mode": "round-robin"}):
        async with make_router(*servers, **options) as router:
            assert [await collect(router, fields_of(prompt)) for prompt in prompts] == expected
            assert [server.num_running for server in router.servers] == [0, 0]


@pytest.mark.thorough
async def test_the_decoding_server_computes_only_the_last_token(
    servers: tuple[ServerProcess, ...],
) -> None:
    prompt = "A story about " + PROMPT
    async with make_router(*servers) as router:
        chunks = router.handle_completion(
            {"prompt": prompt, "max_tokens": 2, "stream_options": {"include_usage": True}}, "id"
        )
        last = [chunk async for chunk in chunks][-1]

    assert last.usage is not None
    assert last.usage.prompt_tokens > 64
    assert last.usage.prompt_tokens_details.cached_tokens == last.usage.prompt_tokens - 1


# httpx2 leaves generators to the garbage collector.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.thorough
async def test_leaving_a_stream_ends_its_request(servers: tuple[ServerProcess, ...]) -> None:
    async with make_router(*servers) as router:
        async with router.handle_completion(
            {"prompt": PROMPT, "ignore_eos": True}, "left"
        ) as chunks:
            await anext(chunks)
            assert [server.num_running for server in router.servers] == [0, 1]
        assert [server.num_running for server in router.servers] == [0, 0]
        with anyio.CancelScope() as scope:
            async for _ in router.handle_completion({"prompt": PROMPT, "ignore_eos": True}, "cut"):
                scope.cancel()

        assert [server.num_running for server in router.servers] == [0, 0]


@pytest.mark.thorough
async def test_a_subclass_may_translate_requests(servers: tuple[ServerProcess, ...]) -> None:
    class Upper(Router):
        def translate_request(self, request: Mapping[str, Any], request_id: str) -> Any:  # noqa: ANN401
            return super().translate_request({**request, "max_tokens": 1}, request_id)

    router = Upper("pebble", hosts=["127.0.0.1"], ports=[servers[1].port], api_key=KEY)
    async with router:
        chunks = router.handle_completion(fields_of(PROMPT), "id")
        finished = [chunk async for chunk in chunks if isinstance(chunk, Completion)][-1]

    assert finished.choices[0].finish_reason == "length"


@pytest.mark.thorough
async def test_errors_of_servers_are_typed(servers: tuple[ServerProcess, ...]) -> None:
    prefill, decode = servers
    async with make_router(*servers) as router:
        with pytest.raises(BadRequestError, match="temperature") as invalid:
            await collect(router, {"prompt": PROMPT, "temperature": -1})
        assert invalid.value.param == "temperature"
        with pytest.raises(BadRequestError, match="prompt: must be"):
            await collect(router, {"prompt": []})
        assert [server.num_running for server in router.servers] == [0, 0]

    # The roles are exchanged: the decoding server must not send to the other one.
    async with make_router(decode, prefill) as router:
        with pytest.raises(BadRequestError, match="is not a peer of this server"):
            await collect(router, {"prompt": "Not sent before: " + PROMPT})

    gone = Router("pebble", hosts=["127.0.0.1"] * 2, ports=[decode.port, 1], api_key=KEY)
    async with gone:
        with pytest.raises(RemoteServerError, match="no answer: ConnectError") as unreachable:
            await collect(gone, fields_of(PROMPT))
        assert unreachable.value.url.startswith("http://127.0.0.1:1/")

    wrong = Router("pebble", hosts=["127.0.0.1"], ports=[decode.port], api_key="wrong")
    async with wrong:
        with pytest.raises(RemoteServerError, match="answered 401") as refused:
            await collect(wrong, fields_of(PROMPT))
        assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")


@pytest.mark.thorough
def test_invalid_requests_are_refused(servers: tuple[ServerProcess, ...]) -> None:
    prefill, decode = servers
    address = base64.b64encode(json.dumps({"url": decode.url, "model": "pebble"}).encode())
    send = {"prompt": PROMPT, "begin": 0, "end": -1, "kv_addr_info": address.decode()}
    with prefill.http(headers=HEADERS) as client:

        def refuse(path: str, fields: dict[str, Any]) -> tuple[int, str | None]:
            answer = client.post(f"/microserving/{path}", json=fields)
            return answer.status_code, answer.json()["error"]["param"]

        assert refuse("prep_recv", {"prompt": PROMPT}) == (400, "end")
        assert refuse("prep_recv", {"prompt": "Hi", "end": 4000}) == (400, "end")
        assert refuse("prep_recv", {"prompt": ["a", "b"], "end": 1}) == (400, "prompt")
        assert refuse("prep_recv", {"prompt": "a", "suffix": "b", "end": 1}) == (400, "suffix")
        long = {"prompt": "word " * 250_000, "end": -1}  # Refused before it is tokenized.
        error = client.post("/microserving/prep_recv", json=long).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert refuse("remote_send", {**send, "begin": 5}) == (400, "begin")
        assert refuse("remote_send", {**send, "begin": 4000}) == (400, "begin")
        assert refuse("remote_send", {**send, "kv_addr_info": "x"}) == (400, "kv_addr_info")
        assert refuse("start_generate", {"prompt": PROMPT, "begin": -1}) == (400, "begin")
        assert refuse("start_generate", {"prompt": PROMPT, "other": 1}) == (400, "other")

        # A damaged piece, and one of another type.
        octets = {"content-type": "application/octet-stream", "x-microserving-key": PEER_KEY}
        damaged = client.post("/microserving/receive_kv", content=b"x" * 100, headers=octets)
        assert damaged.status_code == 422
        assert damaged.json()["error"]["code"] == "prefix_transfer_error"
        secret = {"x-microserving-key": PEER_KEY}
        json_body = client.post("/microserving/receive_kv", json={}, headers=secret)
        assert json_body.status_code == 415
        for wrong in (b"", KEY.encode(), b"\xc3\xa9"):
            headers = {b"x-microserving-key": wrong}
            refused = client.post("/microserving/receive_kv", content=b"x", headers=headers)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "invalid_microserving_key"
        large = client.post("/microserving/receive_kv", content=b"", headers=octets)
        assert large.status_code == 422
    with prefill.http() as client:
        assert client.post("/microserving/receive_kv", content=b"").status_code == 401
