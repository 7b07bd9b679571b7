"""`engine.embeddings`: the vectors of texts, from an encoder."""

from __future__ import annotations

__all__ = ("AsyncEmbeddings", "EmbeddingInput", "EmbeddingOptions")

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, final

from anyio import to_thread

from aiomlc.api.protocol.embedding import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
    parse_embedding_request,
)
from aiomlc.api.session.session import SessionProvider
from aiomlc.errors import BadRequestError, InputTooLongError
from aiomlc.validation.json_values import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from aiomlc.runtime.embedding.embedder import Embedder

EmbeddingInput = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class EmbeddingOptions(TypedDict, total=False):
    """The optional fields of a request for embeddings."""

    model: str | None
    encoding_format: Literal["float", "base64"] | None
    dimensions: int | None
    user: str | None
    pooling: Literal["mean", "cls", "last"] | None
    normalize: bool | None
    truncate: bool | None
    extra_body: Mapping[str, Any] | None


@final
class AsyncEmbeddings:
    """`engine.embeddings`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    async def create(
        self,
        *,
        input: EmbeddingInput,  # noqa: A002 - OpenAI's name.
        **options: Unpack[EmbeddingOptions],
    ) -> EmbeddingResponse:
        """The vector of a text, of token ids, or of each of several, of length 1.

        Concurrent requests share forward passes. Texts get the model's special tokens around
        them; token ids are taken as they are. `dimensions` keeps the first so many elements, and
        what is left has length 1 again.

        Raises:
            BadRequestError: a field is invalid or unknown, or the model is no encoder.
            InputTooLongError: an input has more tokens than the model takes, and `truncate` is
                not set.
            EngineError: the engine is closed.
            ModelLoadError: this was the first request, and the model could not be opened.
        """
        return await self.answer(parse_embedding_request({"input": input, **options}))

    async def answer(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """The answer to a parsed request.

        Raises:
            AiomlcError: as `create`.
        """
        embedder = await self._service.embedder()
        _check_dimensions(request, embedder)
        texts = await to_thread.run_sync(_token_ids, request, embedder)
        vectors = await embedder.embed(texts, request.pooling or embedder.pooling)
        # In a worker thread, as are the texts: a thousand vectors take tens of milliseconds.
        return await to_thread.run_sync(_response, request, embedder, texts, vectors)


def _response(
    request: EmbeddingRequest,
    embedder: Embedder,
    texts: Sequence[Sequence[int]],
    vectors: Sequence[NDArray[np.float32]],
) -> EmbeddingResponse:
    num_tokens = sum(map(len, texts))
    return EmbeddingResponse(
        data=[
            Embedding(index=index, embedding=_wire_form(vector, request))
            for index, vector in enumerate(vectors)
        ],
        model=request.model or embedder.model_name,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )


def _check_dimensions(request: EmbeddingRequest, embedder: Embedder) -> None:
    if request.dimensions is not None and request.dimensions > embedder.hidden_size:
        raise BadRequestError(
            f"dimensions is {request.dimensions}, the model has {embedder.hidden_size}",
            param="dimensions",
        )


def _token_ids(request: EmbeddingRequest, embedder: Embedder) -> list[list[int]]:
    truncate = bool(request.truncate)
    texts = []
    for index, text in enumerate(request.input):
        if isinstance(text, str):
            ids = embedder.tokenizer.encode(text, truncate=truncate)
        else:
            ids = list(text[: embedder.max_tokens] if truncate else text)
            _check_ids(ids, index, embedder.vocab_size)

        if not ids:
            raise BadRequestError(f"input[{index}]: has no tokens", param=f"input[{index}]")

        if len(ids) > embedder.max_tokens:
            raise InputTooLongError(
                index=index, num_tokens=len(ids), max_tokens=embedder.max_tokens
            )

        texts.append(ids)

    return texts


def _check_ids(ids: Sequence[int], index: int, vocab_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise BadRequestError(
                f"input[{index}]: token id {short_repr(token_id)} is not in [0, {vocab_size})",
                param=f"input[{index}]",
            )


def _wire_form(vector: NDArray[np.float32], request: EmbeddingRequest) -> list[float] | str:
    from aiomlc.runtime.embedding.pooling import (
        unit_length,  # It imports numpy, which others can do without.
    )

    vector = vector[: request.dimensions]
    if request.normalize is not False:
        vector = unit_length(vector)

    if request.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()

    values: list[float] = vector.tolist()
    return values
