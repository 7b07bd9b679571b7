"""Tokenization, with vLLM's paths and fields."""

from __future__ import annotations

__all__ = ("DetokenizeRequest", "TokenEndpoints", "TokenizeRequest")

from collections.abc import Sequence
from typing import Annotated, Any, final

from anyio import to_thread
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.base import WireModel, parse
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.serve.context import Context
from aiomlc.serve.fields import prepare_fields
from aiomlc.serve.json_text import to_json
from aiomlc.serve.models import ServedModel
from aiomlc.serve.request_body import read_fields
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
)
_MAX_INLINE_CHARACTERS = 20_000


class TokenizeRequest(WireModel):
    """A text to tokenize."""

    model: StrictStr | None = None
    prompt: StrictStr
    return_token_strs: StrictBool | None = None  #: Whether each token's text is returned too.


class DetokenizeRequest(WireModel):
    """Token ids to turn into text."""

    model: StrictStr | None = None
    tokens: tuple[Annotated[StrictInt, Field(ge=0)], ...]


@final
class TokenEndpoints:
    """`/tokenize` and `/detokenize`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def tokenize(self, request: Request) -> Response:
        """Return the token ids of `prompt`, or of the prompt that a chat's `messages` become."""
        fields, model = await self._read(request)
        with_texts = fields.get("return_token_strs")
        if "messages" in fields:
            chat = {name: fields[name] for name in _CHAT_FIELDS if name in fields}
            parsed = await parse_off_loop(parse_chat_request, chat)
            token_ids = await model.engine.chat.completions.encode(parsed)
        else:
            prompt = parse(TokenizeRequest, fields).prompt
            await model.engine.metrics()  # Opens the model.
            encode = model.engine.tokenizer.encode
            is_long = len(prompt) > _MAX_INLINE_CHARACTERS
            token_ids = await to_thread.run_sync(encode, prompt) if is_long else encode(prompt)

        return _json(
            {
                "count": len(token_ids),
                "max_model_len": model.engine.max_input_sequence_length,
                "tokens": token_ids,
                "token_strs": _texts(model.engine, token_ids) if with_texts else None,
            }
        )

    async def detokenize(self, request: Request) -> Response:
        """Return the text of token ids, without special tokens."""
        fields, model = await self._read(request)
        tokens = parse(DetokenizeRequest, fields).tokens
        await model.engine.metrics()  # Opens the model.
        tokenizer = model.engine.tokenizer
        check_token_ids("tokens", tokens, tokenizer.vocab_size)
        return _json({"prompt": tokenizer.decode(tokens)})

    async def _read(self, request: Request) -> tuple[dict[str, Any], ServedModel]:
        options = self._context.options
        fields = await read_fields(request.scope, request.receive, options)
        model = self._context.models.find(fields.get("model"))
        return prepare_fields(fields, TokenizeRequest, model.name, options), model


def _texts(engine: AsyncMLCEngine, token_ids: Sequence[int]) -> list[str]:
    texts = engine.tokenizer.vocab_bytes
    return [texts[token_id].decode(errors="replace") for token_id in token_ids]


def _json(value: object) -> Response:
    return Response(to_json(value), media_type="application/json")
