"""`engine.embeddings`: text embeddings from an encoder model."""

from __future__ import annotations

__all__ = ("AsyncEmbeddings", "EmbeddingInput", "EmbeddingOptions")

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack, cast, final

from anyio import to_thread

from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.embedding import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
    parse_embedding_request,
)
from aiomlc.api.protocol.limits import check_input_size, parse_off_loop
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.pending_response import returns_pending
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.misuse import keyword_only
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Doc
from aiomlc.validation.tracebacks import keeps_origin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from aiomlc.runtime.embedding.embedder import Embedder
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
    from aiomlc.runtime.native.encoder import EncoderInput

EmbeddingInput = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class EmbeddingOptions(TypedDict, total=False):
    """The optional fields of a request for embeddings."""

    model: Annotated[str | None, Doc("A name that the response repeats.")]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Doc('Lists of numbers, or base64 ("float").')
    ]
    dimensions: Annotated[int | None, Doc("Keep this many elements of each embedding (all).")]
    user: Annotated[str | None, Doc("A label without effect.")]
    pooling: Annotated[
        Literal["mean", "cls", "last"] | None, Doc("How tokens are pooled (as the model's files).")
    ]
    normalize: Annotated[bool | None, Doc("Whether embeddings have length 1 (as the files).")]
    prompt_name: Annotated[str | None, Doc("The prompt of the model that precedes texts.")]
    truncate: Annotated[bool | None, Doc("Whether longer inputs are truncated (False).")]
    extra_body: Annotated[Mapping[str, Any] | None, Doc("Further fields, merged with the others.")]


@hides("embed", "embedder")
@final
class AsyncEmbeddings:
    """`engine.embeddings`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    @documents_options(EmbeddingOptions)
    @keyword_only
    @returns_pending
    @keeps_origin
    async def create(
        self,
        *,
        input: EmbeddingInput,  # noqa: A002 - OpenAI's name.
        **options: Unpack[EmbeddingOptions],
    ) -> EmbeddingResponse:
        """Embed one input or several; an input is text or a list of token ids.

        Text is wrapped in the model's special tokens; token ids are used unchanged. `dimensions`
        keeps the first elements of each embedding. Embeddings are L2-normalized, after truncation
        to `dimensions`, unless `normalize` (by default that of the model) is False. Concurrent
        requests are batched.

        Raises:
            BadRequestError: If a field is invalid or unknown, or the model has no embeddings.
            InputTooLongError: If an input has more tokens than the model accepts and `truncate`
                is not set.
            EngineError: If the engine is closed.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"input": input, **options}
        return await self.embed(
            await parse_off_loop(parse_embedding_request, fields, check_input_size)
        )

    async def embedder(self) -> Embedder:
        """Return the embedder of the model, which has its default options.

        Raises:
            BadRequestError: If the model has no embeddings.
            EngineError: If the engine is closed.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        return _embedder(await self._service.encoder("embedding"))

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Embed the inputs of a validated request.

        Raises:
            AiomlcError: As `create`.
        """
        engine = await self._service.encoder("embedding")
        embedder = _embedder(engine)
        _check_dimensions(request, embedder)
        with engine.request():
            # Tokenization and serialization run in a worker thread: each takes tens of milliseconds
            # for a thousand inputs.
            inputs = await run_in_worker(partial(_tokenize, request, embedder))
            vectors = await embedder.embed(inputs, request.pooling or embedder.pooling)
            return await to_thread.run_sync(_make_response, request, embedder, inputs, vectors)


def _embedder(engine: EncoderEngine) -> Embedder:
    return cast("Embedder", engine.model)


def _tokenize(
    request: EmbeddingRequest, embedder: Embedder, is_cancelled: Callable[[], bool]
) -> list[EncoderInput]:
    # Imported here because the module imports numpy, which only encoders need.
    from aiomlc.runtime.embedding.input_encoder import encode_inputs

    inputs = _with_prompt(request, embedder)
    return encode_inputs(inputs, embedder, is_cancelled, truncate=bool(request.truncate))


def _with_prompt(request: EmbeddingRequest, embedder: Embedder) -> Sequence[str | tuple[int, ...]]:
    """Return the inputs, with the prompt of that name before each text."""
    name = embedder.default_prompt if request.prompt_name is None else request.prompt_name
    if name is None:
        return request.input

    if name not in embedder.prompts:
        names = ", ".join(map(repr, embedder.prompts)) or "none"
        raise BadRequestError(
            f"prompt_name: must be one of the model's prompts ({names}), got {safe_repr(name)}",
            param="prompt_name",
        )

    prompt = embedder.prompts[name]
    return [prompt + item if isinstance(item, str) else item for item in request.input]


def _make_response(
    request: EmbeddingRequest,
    embedder: Embedder,
    inputs: Sequence[EncoderInput],
    vectors: Sequence[NDArray[np.float32]],
) -> EmbeddingResponse:
    num_tokens = sum(len(each.ids) for each in inputs)
    normalize = embedder.normalize if request.normalize is None else request.normalize
    return EmbeddingResponse(
        data=[
            Embedding(index=index, embedding=_to_wire_vector(vector, request, normalize))
            for index, vector in enumerate(vectors)
        ],
        model=request.model or embedder.model_name,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )


def _check_dimensions(request: EmbeddingRequest, embedder: Embedder) -> None:
    size = request.dimensions
    if size is None or size == embedder.size:
        return

    allowed = f"<= {embedder.size}, the model's embedding size"
    if embedder.dimensions:
        allowed = f"one of {', '.join(map(str, embedder.dimensions))}, which the model supports"
    if size > embedder.size or (embedder.dimensions and size not in embedder.dimensions):
        raise BadRequestError(f"dimensions: must be {allowed}, got {size}", param="dimensions")


def _to_wire_vector(
    vector: NDArray[np.float32], request: EmbeddingRequest, normalize: bool
) -> list[float] | str:
    # Imported here because the module imports numpy, which only embeddings need.
    from aiomlc.runtime.embedding.pooling import l2_normalize

    vector = vector[: request.dimensions]
    if normalize:
        vector = l2_normalize(vector)

    if request.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()

    values: list[float] = vector.tolist()
    return values
