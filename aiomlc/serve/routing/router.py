"""MLC LLM's `Router`: completions on several servers, of which one may prefill for the others."""

from __future__ import annotations

__all__ = ("Router",)

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from ipaddress import IPv6Address
from typing import Annotated, Any, Literal, Self

import httpx2
from pydantic import BaseModel, Field

from aiomlc.api.protocol.completion import Completion
from aiomlc.errors import BadRequestError
from aiomlc.serve.routing.routed_stream import RoutedStream, ServerClient

RouterMode = Literal["disagg", "round-robin"]
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")  # Or an IPv4 address.
_Number = Annotated[int, Field(strict=True, ge=0)]


class _Tokens(BaseModel):
    """The fields of the answer of `/tokenize` that the router needs."""

    tokens: list[_Number]


class _Prepared(BaseModel):
    """The answer of `/microserving/prep_recv`."""

    kv_append_metadata: str
    prefix_matched_length: _Number


class _Sent(BaseModel):
    """The answer of `/microserving/remote_send`."""


class Router:
    """A client of several servers of one model, which sends each completion to some of them.

        router = Router("model", hosts=["10.0.0.1", "10.0.0.2"], ports=[8000, 8000])
        async with router, router.handle_completion({"prompt": "Once"}, "id") as chunks:
            async for chunk in chunks:
                ...

    The servers run already: `aiomlc serve --microserving-peers ...`. In the mode "disagg" the first
    one prefills, and the least busy other one gets the keys and values and decodes; the text is the
    same as from one server. In the mode "round-robin" (MLC LLM's name) the least busy server does
    all. A subclass may override `translate_request`, and use `servers`.

    Args:
        model: The name of the model at the servers.
        model_lib: Accepted for MLC LLM's sake, and not used: the servers have opened the model.
        hosts: The addresses of the servers.
        ports: Their ports, one for each host.
        num_gpus: Accepted for MLC LLM's sake; one number for each host.
        enable_prefix_cache: The same: the servers' own setting counts.
        router_mode: How requests are distributed.
        pd_balance_factor: The fraction of a prompt, from its end, that the decoding server
            prefills; at least its last token.
        api_key: The API key of all servers.
        timeout: The seconds that a server may be silent.
        transport: The transport of the requests; None for sockets.

    Raises:
        BadRequestError: If an argument is invalid; `param` names it.
    """

    def __init__(  # noqa: PLR0913 - MLC LLM's signature.
        self,
        model: str | None = None,
        model_lib: str | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
        ports: Sequence[int] = (8080,),
        num_gpus: Sequence[int] | None = None,
        enable_prefix_cache: bool = False,
        router_mode: RouterMode = "disagg",
        pd_balance_factor: float = 0.0,
        *,
        api_key: str | None = None,
        timeout: float = 300.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        _check_lengths(hosts, ports, num_gpus)
        if router_mode not in ("disagg", "round-robin"):
            raise BadRequestError(
                f'router_mode: must be "disagg" or "round-robin", got {router_mode!r}',
                param="router_mode",
            )

        if not 0 <= pd_balance_factor < 1:
            raise BadRequestError(
                f"pd_balance_factor: must be in [0, 1), got {pd_balance_factor!r}",
                param="pd_balance_factor",
            )

        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._client = httpx2.AsyncClient(
            timeout=timeout, headers=headers, transport=transport, trust_env=False
        )
        self.model: str | None = model
        self.router_mode: RouterMode = router_mode
        self.pd_balance_factor: float = pd_balance_factor
        #: The servers, in the order of `hosts`.
        self.servers: tuple[ServerClient, ...] = tuple(
            ServerClient(self._client, _url(host, port))
            for host, port in zip(hosts, ports, strict=True)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.terminate()

    async def terminate(self) -> None:
        """Close the connections to the servers, which go on."""
        await self._client.aclose()

    def handle_completion(
        self, request: Mapping[str, Any] | BaseModel, request_id: str
    ) -> RoutedStream:
        """Return the chunks of a completion; iterating over them makes the requests.

        Args:
            request: The fields of a text completion with one prompt, a string or token ids.
            request_id: The id of the request.

        Raises:
            BadRequestError: While iterating, if a server finds the request invalid.
            RemoteServerError: While iterating, if a server fails, cannot be reached, or answers
                what its endpoint never returns.
        """
        fields = request.model_dump() if isinstance(request, BaseModel) else dict(request)
        fields = {name: value for name, value in fields.items() if value is not None}
        if self.model is not None:
            fields.setdefault("model", self.model)

        chunks = self.translate_request(fields, request_id)
        return chunks if isinstance(chunks, RoutedStream) else RoutedStream(partial(_adopt, chunks))

    def translate_request(
        self, request: Mapping[str, Any], request_id: str
    ) -> AsyncIterator[Completion]:
        """Return the chunks of a completion, from the servers that this method chooses.

        A subclass may override it, also by an async generator.
        """
        is_disaggregated = self.router_mode == "disagg" and len(self.servers) > 1
        open_chunks = self._open_disaggregated if is_disaggregated else self._open_on_one
        fields = {**request, "request_id": request_id, "stream": True}
        return RoutedStream(partial(open_chunks, fields))

    def least_busy(self, servers: Sequence[ServerClient]) -> ServerClient:
        """Return the first of the servers with the fewest streams of this router."""
        return min(servers, key=lambda server: server.num_running)

    async def _open_on_one(
        self, fields: Mapping[str, Any], scope: AsyncExitStack
    ) -> AsyncIterator[Completion]:
        return await self.least_busy(self.servers).stream("/v1/completions", fields, scope)

    async def _open_disaggregated(
        self, fields: Mapping[str, Any], scope: AsyncExitStack
    ) -> AsyncIterator[Completion]:
        prefill, *others = self.servers
        decode = self.least_busy(others)
        with decode.busy():
            fields = await self._move_prompt(prefill, decode, fields)
        return await decode.stream("/microserving/start_generate", fields, scope)

    async def _move_prompt(
        self, prefill: ServerClient, decode: ServerClient, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let one server compute the prompt for another; return the fields of the completion."""
        prompt = await self._token_ids(decode, fields)
        # The last token is computed where its logits are needed.
        end = min(len(prompt) - 1, int((1 - self.pd_balance_factor) * len(prompt)))
        fields = {**fields, "prompt": prompt}
        plain = {name: value for name, value in fields.items() if not name.startswith("stream")}
        if end > 0:
            prepared = await decode.post(
                "/microserving/prep_recv", {**plain, "end": end}, _Prepared
            )
            begin = prepared.prefix_matched_length
            if begin < end:
                address = {"kv_addr_info": prepared.kv_append_metadata, "recv_rank": 0}
                send = {**plain, **address, "begin": begin, "end": end}
                await prefill.post("/microserving/remote_send", send, _Sent)

        return {**fields, "begin": max(0, end)}

    async def _token_ids(self, server: ServerClient, fields: Mapping[str, Any]) -> list[int]:
        prompt = fields.get("prompt")
        if isinstance(prompt, str):
            text = {name: fields[name] for name in ("model", "prompt") if name in fields}
            return (await server.post("/tokenize", text, _Tokens)).tokens

        if (
            isinstance(prompt, (list, tuple))
            and len(prompt) == 1
            and not isinstance(prompt[0], int)
        ):
            return await self._token_ids(server, {**fields, "prompt": prompt[0]})

        if not isinstance(prompt, (list, tuple)) or not prompt:
            raise BadRequestError("prompt: must be a string or token ids", param="prompt")

        return list(prompt)


async def _adopt(
    chunks: AsyncIterator[Completion], scope: AsyncExitStack
) -> AsyncIterator[Completion]:
    """Let `scope` end the chunks of an overridden `translate_request`."""
    if isinstance(chunks, AsyncGenerator):
        scope.push_async_callback(chunks.aclose)

    return chunks


def _url(host: str, port: int) -> str:
    if not isinstance(port, int) or not 0 < port < 65536:
        raise BadRequestError(f"ports: must be from 1 to 65535, got {port!r}", param="ports")

    if isinstance(host, str):
        if _HOST_NAME.fullmatch(host):
            return f"http://{host}:{port}"

        with suppress(ValueError):
            return f"http://[{IPv6Address(host.removeprefix('[').removesuffix(']'))}]:{port}"

    raise BadRequestError(
        f"hosts: must be names or IP addresses without a port, got {host!r}", param="hosts"
    )


def _check_lengths(
    hosts: Sequence[str], ports: Sequence[int], num_gpus: Sequence[int] | None
) -> None:
    if not hosts or isinstance(hosts, str):
        raise BadRequestError(f"hosts: must be a list of addresses, got {hosts!r}", param="hosts")

    for name, values in (("ports", ports), ("num_gpus", num_gpus)):
        if values is not None and len(values) != len(hosts):
            raise BadRequestError(
                f"{name}: must have one number for each of the {len(hosts)} hosts, got "
                f"{len(values)}",
                param=name,
            )
