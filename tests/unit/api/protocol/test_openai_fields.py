"""Every field that the real client can send: acted on, or refused by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiomlc import BadRequestError
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.completion import CompletionRequest, parse_completion_request
from aiomlc.api.protocol.embedding import EmbeddingRequest, parse_embedding_request
from aiomlc.api.protocol.response_request import ResponseRequest, parse_response_request

resources = pytest.importorskip("openai.resources")
responses = pytest.importorskip("openai.resources.responses")
# What the client itself acts on.
_ITS_OWN = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
USER = {"role": "user", "content": "Hi"}


class Refused:
    """A value that no field takes."""


Parse = Callable[[Mapping[str, Any]], object]
REQUESTS: dict[str, tuple[Any, Any, Parse, dict[str, Any]]] = {
    "chat": (
        resources.chat.completions.Completions.create,
        ChatCompletionRequest,
        parse_chat_request,
        {"messages": [USER]},
    ),
    "completions": (
        resources.Completions.create,
        CompletionRequest,
        parse_completion_request,
        {"prompt": "Hi"},
    ),
    "embeddings": (
        resources.Embeddings.create,
        EmbeddingRequest,
        parse_embedding_request,
        {"input": "Hi"},
    ),
    "responses": (
        responses.Responses.create,
        ResponseRequest,
        parse_response_request,
        {"input": "Hi"},
    ),
}


def names_of(create: Callable[..., object]) -> list[str]:
    return sorted(inspect.signature(create).parameters.keys() - _ITS_OWN)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_field_of_the_client_is_acted_on_or_refused_by_its_name(kind: str) -> None:
    create, _, parse, needed = REQUESTS[kind]
    names = names_of(create)
    assert needed.keys() <= set(names)
    for name in names:
        with pytest.raises(BadRequestError) as caught:
            parse({**needed, name: Refused()})

        assert (caught.value.param or "").split(".")[0].split("[")[0] == name
        assert "is not a known field" not in str(caught.value)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_field_that_is_left_open_asks_for_nothing(kind: str) -> None:
    create, request, parse, needed = REQUESTS[kind]
    nothing = {name: None for name in names_of(create) if name not in needed}

    assert isinstance(parse({**nothing, **needed}), request)
