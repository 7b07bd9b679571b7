"""MLC LLM's microserving: a prompt is prefilled by one server and decoded by another.

`prep_recv` asks the decoding server what it has of a prompt, `remote_send` the other one to send
what is missing, piece by piece, to `receive_kv`, and `start_generate` begins the completion.
"""

from __future__ import annotations

__all__ = ("RECEIVE_PATH", "START_GENERATE", "MicroservingEndpoints")

import base64
import hmac
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, TypeVar, final

import httpx2
import orjson
from anyio.abc import TaskGroup
from pydantic import Field, StrictInt, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.base import WireModel, parse
from aiomlc.api.protocol.completion import CompletionRequest, parse_completion_request
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.config import PAGE_SIZE
from aiomlc.errors import BadRequestError
from aiomlc.serve.context import Context
from aiomlc.serve.endpoints.generation import COMPLETIONS, GenerationAPI
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import json_response
from aiomlc.serve.http.request_body import read_bytes, read_fields

RECEIVE_PATH: Final = "/microserving/receive_kv"
_KEY_HEADER: Final = "x-microserving-key"
_MAX_PIECE_BYTES: Final = 64 << 20
_Position = Annotated[StrictInt, Field(ge=0)]


class PrepRecv(WireModel):
    """The fields of `prep_recv` that are not those of a completion."""

    end: StrictInt  #: The tokens to be received; counted from the end of the prompt if negative.


class RemoteSend(WireModel):
    """The fields of `remote_send` that are not those of a completion."""

    begin: _Position  #: The tokens that the receiver has.
    end: StrictInt  #: The end of the tokens to send; as in `PrepRecv`.
    kv_addr_info: StrictStr  #: `kv_append_metadata` of the receiver's answer.
    recv_rank: StrictInt = 0  #: Without effect: a server has one device.


class StartGenerate(WireModel):
    """The fields of `start_generate` that are not those of a completion."""

    #: Without effect: the engine finds in its cache what it received.
    begin: _Position | None = None


_Own = TypeVar("_Own", PrepRecv, RemoteSend)


class _Receiver(NamedTuple):
    url: str
    model: str


@final
class MicroservingEndpoints:
    """`prep_recv`, `remote_send`, and the end of the transfer between two servers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._peers = frozenset(context.options.microserving_peers)
        key = context.options.microserving_key
        self._secret = {} if key is None else {_KEY_HEADER: key}

    async def prep_recv(self, request: Request) -> Response:
        """Return how many tokens of a prompt are cached here, and where to send the others."""
        own, engine, name, prompt = await self._read(request, PrepRecv)
        end = _end(own.end, prompt)
        cached = await engine.count_cached_tokens(prompt=prompt[:end]) if end > 0 else 0
        # The piece that is missing begins with a page.
        resume_at = end if cached >= end else cached - cached % PAGE_SIZE

        address = {"url": str(request.base_url).rstrip("/"), "model": name}
        return json_response(
            {
                "kv_append_metadata": base64.b64encode(orjson.dumps(address)).decode(),
                "prefix_matched_length": resume_at,
            }
        )

    async def remote_send(self, request: Request) -> Response:
        """Prefill a prompt unless it is cached, and send its keys and values to a peer."""
        own, engine, _, prompt = await self._read(request, RemoteSend)
        end = _end(own.end, prompt)
        receiver = self._receiver(own.kv_addr_info)
        if own.begin >= end:
            raise BadRequestError(f"begin: must be < end ({end}), got {own.begin}", param="begin")

        if own.begin % PAGE_SIZE:
            raise BadRequestError(
                f"begin: must be a multiple of {PAGE_SIZE}, got {own.begin}", param="begin"
            )

        headers = {"content-type": "application/octet-stream", **self._secret}
        if (authorization := request.headers.get("authorization")) is not None:
            headers["authorization"] = authorization

        async def send(_: TaskGroup) -> None:
            export = await engine.export_prefix(prompt=prompt[:end], start=own.begin)
            with export as pieces:
                async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
                    async for piece in pieces:
                        await _post(client, receiver, headers, piece)

        await run_until_disconnect(request.receive, send)
        return json_response({})

    async def receive(self, request: Request) -> Response:
        """Add a piece that a peer has sent to the prefix cache."""
        self._check_secret(request)
        options = self._context.options
        model = self._context.models.find(request.query_params.get("model"))
        piece = await read_bytes(request.scope, request.receive, options, max_size=_MAX_PIECE_BYTES)
        return json_response({"num_tokens": await model.engine.import_prefix(piece)})

    async def _read(
        self, request: Request, kind: type[_Own]
    ) -> tuple[_Own, AsyncMLCEngine, str, list[int]]:
        """Return the own fields of a request, its engine, the model's name, and its prompt."""
        options = self._context.options
        fields = await read_fields(request.scope, request.receive, options)
        model = self._context.models.find(fields.get("model"))
        own = parse(kind, _take(fields, kind))
        fields = prepare_fields(fields, model.name, options)
        parse_completion = partial(parse_completion_request, ignored=self._context.ignored)
        completion = await parse_off_loop(parse_completion, fields)
        if completion.suffix is not None:
            raise BadRequestError("suffix: is not supported in microserving", param="suffix")

        if len(completion.prompt) != 1:
            raise BadRequestError("prompt: must be one prompt in microserving", param="prompt")

        (prompt,) = await model.engine.completions.encode(completion)
        return own, model.engine, model.name, prompt

    def _check_secret(self, request: Request) -> None:
        """Require the secret of the peers, before the body is read."""
        for name, key in self._secret.items():
            given = request.headers.get(name, "")
            if not hmac.compare_digest(given.encode("latin-1"), key.encode()):
                raise HTTPError(
                    403,
                    "only servers that know the microserving key may send keys and values",
                    code="invalid_microserving_key",
                )

    def _receiver(self, text: str) -> _Receiver:
        try:
            fields = orjson.loads(base64.b64decode(text, validate=True))
            receiver = _Receiver(str(fields["url"]), str(fields["model"]))
        except (ValueError, KeyError, TypeError):
            raise BadRequestError(
                "kv_addr_info: must be the kv_append_metadata of prep_recv", param="kv_addr_info"
            ) from None

        if receiver.url not in self._peers:
            raise BadRequestError(
                f"kv_addr_info: {receiver.url!r} is not a peer of this server; the operator can "
                "add it to --microserving-peers",
                param="kv_addr_info",
            )

        return receiver


def _take(fields: dict[str, Any], kind: type[WireModel]) -> dict[str, Any]:
    """Remove the own fields of an endpoint from those of the completion, and return them."""
    return {name: fields.pop(name) for name in kind.model_fields if name in fields}


def _end(end: int, prompt: list[int]) -> int:
    position = end if end >= 0 else len(prompt) + end
    if not 0 <= position <= len(prompt):
        raise BadRequestError(
            f"end: must be from {-len(prompt)} to {len(prompt)}, got {end}", param="end"
        )

    return position


async def _post(
    client: httpx2.AsyncClient, receiver: _Receiver, headers: Mapping[str, str], piece: bytes
) -> None:
    url = receiver.url + RECEIVE_PATH
    try:
        answer = await client.post(
            url, params={"model": receiver.model}, content=piece, headers=headers
        )
    except httpx2.HTTPError as error:
        raise HTTPError(
            502,
            f"{url} cannot be reached: {type(error).__name__} {error}",
            code="receiver_unreachable",
        ) from None

    if answer.status_code != 200:
        raise HTTPError(
            502,
            f"{url} answered {answer.status_code}: {answer.text[:500]}",
            code="receiver_failed",
        )


def _parse_start(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> CompletionRequest:
    rest = dict(fields)
    parse(StartGenerate, _take(rest, StartGenerate))
    return parse_completion_request(rest, ignored)


START_GENERATE: Final[GenerationAPI] = replace(COMPLETIONS, parse=_parse_start)
