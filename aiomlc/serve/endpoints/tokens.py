"""Tokenization, with vLLM's paths and fields."""

from __future__ import annotations

__all__ = ("DetokenizeRequest", "TokenEndpoints", "TokenizeRequest")

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar, final

from anyio.abc import TaskGroup
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.base import WireModel, parse
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.completion import parse_completion_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.serve.context import Context
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import json_response
from aiomlc.serve.http.request_body import read_fields
from aiomlc.serve.models import ServedModel
from aiomlc.validation.arguments import check_token_ids

# The fields of a chat that change its prompt.
_CHAT_FIELDS = (
    "messages",
    "tools",
    "tool_choice",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "reasoning_effort",
    "add_special_tokens",
    "split_special_tokens",
)


class TokenizeRequest(WireModel):
    """A text to tokenize."""

    model: StrictStr | None = None
    prompt: StrictStr
    # As in a request for a completion.
    add_special_tokens: StrictBool | None = None
    split_special_tokens: StrictBool | None = None
    return_token_strs: StrictBool | None = None  #: Whether each token's text is returned too.


class DetokenizeRequest(WireModel):
    """Token ids to turn into text."""

    model: StrictStr | None = None
    tokens: tuple[Annotated[StrictInt, Field(ge=0)], ...]


_Request = TypeVar("_Request", bound=WireModel)
_Answer = Callable[[dict[str, Any], ServedModel], Awaitable[dict[str, Any]]]


@final
class TokenEndpoints:
    """`/tokenize` and `/detokenize`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def tokenize(self, request: Request) -> Response:
        """Return the token ids of `prompt`, or of the prompt that a chat's `messages` become."""
        return await self._respond(request, self._tokenize)

    async def detokenize(self, request: Request) -> Response:
        """Return the text of token ids, without special tokens."""
        return await self._respond(request, self._detokenize)

    async def _respond(self, request: Request, answer: _Answer) -> Response:
        fields = await read_fields(request.scope, request.receive, self._context.options)
        model = self._context.models.find(fields.get("model"))

        async def respond(_: TaskGroup) -> Response:
            return json_response(await answer(fields, model))

        response = await run_until_disconnect(request.receive, respond)
        return Response() if response is None else response

    async def _tokenize(self, fields: dict[str, Any], model: ServedModel) -> dict[str, Any]:
        encode = self._encode_chat if "messages" in fields else self._encode_text
        token_ids = await encode(fields, model)
        with_texts = fields.get("return_token_strs")
        return {
            "count": len(token_ids),
            "max_model_len": model.engine.max_input_sequence_length,
            "tokens": token_ids,
            "token_strs": _texts(model.engine, token_ids) if with_texts else None,
        }

    async def _encode_chat(self, fields: dict[str, Any], model: ServedModel) -> list[int]:
        chat = {name: fields[name] for name in _CHAT_FIELDS if name in fields}
        chat = prepare_fields(chat, model.name, self._context.options)
        parse = partial(parse_chat_request, ignored=self._context.ignored)
        request = await parse_off_loop(parse, chat)
        await model.open()
        return await model.engine.chat.completions.encode(request)

    async def _encode_text(self, fields: dict[str, Any], model: ServedModel) -> list[int]:
        fields = prepare_fields(fields, model.name, self._context.options)
        parsed = await self._parse(TokenizeRequest, fields)
        completion = parsed.model_dump(exclude={"model", "return_token_strs"})
        request = await parse_off_loop(parse_completion_request, completion)
        await model.open()
        (token_ids,) = await model.engine.completions.encode(request)
        return token_ids

    async def _detokenize(self, fields: dict[str, Any], model: ServedModel) -> dict[str, Any]:
        fields = prepare_fields(fields, model.name, self._context.options)
        if isinstance(fields.get("tokens"), list):  # Else the request is refused below.
            await model.open()
            _check_number(fields["tokens"], model.engine.max_input_sequence_length)
        tokens = (await self._parse(DetokenizeRequest, fields)).tokens
        tokenizer = model.engine.tokenizer
        check_token_ids("tokens", tokens, tokenizer.vocab_size)
        return {"prompt": await run_in_worker(lambda _: tokenizer.decode(tokens))}

    async def _parse(self, request_type: type[_Request], fields: dict[str, Any]) -> _Request:
        return await parse_off_loop(
            partial(parse, request_type, ignored=self._context.ignored), fields
        )


def _check_number(tokens: list[object], context_window: int) -> None:
    if len(tokens) > context_window:
        raise HTTPError(
            400,
            f"tokens: must have at most {context_window} token ids, the context window of the "
            f"model, got {len(tokens)}",
            param="tokens",
            code="context_length_exceeded",
        )


def _texts(engine: AsyncMLCEngine, token_ids: Sequence[int]) -> list[str]:
    texts = engine.tokenizer.vocab_bytes
    return [texts[token_id].decode(errors="replace") for token_id in token_ids]
