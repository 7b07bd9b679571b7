"""`engine.embeddings`: embeddings of texts and images from an encoder model."""

from __future__ import annotations

__all__ = ("AsyncEmbeddings", "EmbeddingInput", "EmbeddingOptions", "token_outputs")

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, cast, final

from anyio import to_thread

from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.embedding import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
    SparseEmbedding,
    parse_embedding_request,
)
from aiomlc.api.protocol.limits import (
    MAX_MULTI_VECTOR_NUMBERS,
    check_input_size,
    parse_off_loop,
)
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.pending_response import returns_pending
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.misuse import keyword_only
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Doc
from aiomlc.validation.tracebacks import keeps_origin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aiomlc.runtime.embedding.embedder import Embedder
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
    from aiomlc.runtime.embedding.similarity import TextEmbedding
    from aiomlc.runtime.embedding.token_heads import TokenOutputs
    from aiomlc.runtime.native.encoder import EncoderInput

EmbeddingItem = str | Sequence[int] | Mapping[str, Any] | ImageData
EmbeddingInput = EmbeddingItem | Sequence[EmbeddingItem]


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
    return_sparse: Annotated[bool | None, Doc("Also return the weights of tokens (False).")]
    return_multi_vector: Annotated[bool | None, Doc("Also return the vectors of tokens (False).")]
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
        """Embed one input or several; an input is text, a list of token ids, or an image.

        An object is a text or an image, too: `{"text": ...}`, `{"image": URL}`, or a content part
        of a chat. Only some models embed images, such as CLIP, in the space of their texts.

        Text is wrapped in the model's special tokens; token ids are used unchanged. `dimensions`
        keeps the first elements of each embedding. Embeddings are L2-normalized, after truncation
        to `dimensions`, unless `normalize` (by default that of the model) is False. Concurrent
        requests are batched.

        BGE M3 has two further embeddings: the weights of tokens (`return_sparse`), and the vectors
        of tokens (`return_multi_vector`), normalized like those of texts.

        Raises:
            BadRequestError: If a field is invalid or unknown, the model has no such embeddings, an
                image cannot be loaded, or the vectors of tokens would be more than a response may
                have.
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
        _check_pooling(request, embedder)
        outputs = token_outputs(
            embedder,
            sparse="return_sparse" if request.return_sparse else None,
            multi_vector="return_multi_vector" if request.return_multi_vector else None,
        )
        with engine.request():
            # Tokenization and serialization run in a worker thread: each takes tens of milliseconds
            # for a thousand inputs.
            images = request.images
            vectors: list[TextEmbedding] = []
            inputs = await run_in_worker(partial(_tokenize, request, embedder))
            num_tokens = sum(len(each.ids) for each in inputs)
            if outputs.multi_vector:
                _check_size(inputs, embedder)
            if images:
                part = embedder.require_images(images[0][0])
                num_tokens += len(images) * part.num_tokens
                vectors = await part.embed(await engine.image_sources.load(images, "input"))
            texts = await embedder.embed(inputs, request.pooling or embedder.pooling, outputs)
            embedded = _in_order(request, texts, vectors)
            return await to_thread.run_sync(_make_response, request, embedder, embedded, num_tokens)


def _embedder(engine: EncoderEngine) -> Embedder:
    return cast("Embedder", engine.model)


def _tokenize(
    request: EmbeddingRequest, embedder: Embedder, is_cancelled: Callable[[], bool]
) -> list[EncoderInput]:
    # Imported here because the module imports numpy, which only encoders need.
    from aiomlc.runtime.embedding.input_encoder import encode_inputs

    texts = {
        index: item
        for index, item in enumerate(request.input)
        if not isinstance(item, ImageReference)
    }
    inputs = _with_prompt(list(texts.values()), request, embedder)
    return encode_inputs(
        inputs, embedder, is_cancelled, places=list(texts), truncate=bool(request.truncate)
    )


def _in_order(
    request: EmbeddingRequest, texts: Sequence[TextEmbedding], images: Sequence[TextEmbedding]
) -> list[TextEmbedding]:
    """Return the embeddings in the order of the inputs."""
    of_texts, of_images = iter(texts), iter(images)
    return [
        next(of_images if isinstance(item, ImageReference) else of_texts) for item in request.input
    ]


def _with_prompt(
    inputs: Sequence[str | tuple[int, ...]], request: EmbeddingRequest, embedder: Embedder
) -> Sequence[str | tuple[int, ...]]:
    """Return the inputs, with the prompt of that name before each text."""
    name = embedder.default_prompt if request.prompt_name is None else request.prompt_name
    if name is None:
        return inputs

    if name not in embedder.prompts:
        names = ", ".join(map(repr, embedder.prompts)) or "none"
        raise BadRequestError(
            f"prompt_name: must be one of the model's prompts ({names}), got {safe_repr(name)}",
            param="prompt_name",
        )

    prompt = embedder.prompts[name]
    return [prompt + item if isinstance(item, str) else item for item in inputs]


def _make_response(
    request: EmbeddingRequest,
    embedder: Embedder,
    embedded: Sequence[TextEmbedding],
    num_tokens: int,
) -> EmbeddingResponse:
    normalize = embedder.normalize if request.normalize is None else request.normalize
    return EmbeddingResponse(
        data=[
            _to_wire(index, each, request, normalize=normalize)
            for index, each in enumerate(embedded)
        ],
        model=request.model or embedder.model_name,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )


def token_outputs(
    embedder: Embedder, *, sparse: str | None, multi_vector: str | None
) -> TokenOutputs:
    """Return what an encoder is asked for besides vectors of texts.

    Args:
        sparse: The field that asks for weights of tokens, or None.
        multi_vector: The same of vectors of tokens.

    Raises:
        BadRequestError: If the model has no layer for it.
    """
    from aiomlc.runtime.embedding.token_heads import TokenOutputs

    heads = embedder.heads
    for field, head, name in (
        (sparse, heads.sparse, "sparse_linear"),
        (multi_vector, heads.multi_vector, "colbert_linear"),
    ):
        if field is not None and head is None:
            raise BadRequestError(
                f"{field}: the model {embedder.model_name!r} has no {name}.pt or "
                f"{name}.safetensors beside its weights, as BGE M3 has",
                param=field,
            )

    return TokenOutputs(sparse is not None, multi_vector is not None)


def _check_size(inputs: Sequence[EncoderInput], embedder: Embedder) -> None:
    assert embedder.heads.multi_vector is not None, "checked by token_outputs"
    size = embedder.heads.multi_vector.weight.shape[0]
    number = sum(len(each.ids) - 1 for each in inputs) * size
    if number > MAX_MULTI_VECTOR_NUMBERS:
        raise BadRequestError(
            f"return_multi_vector: the vectors of a response must have at most "
            f"{MAX_MULTI_VECTOR_NUMBERS:,} numbers in total, got {number:,}: embed fewer or "
            "shorter inputs at a time",
            param="return_multi_vector",
        )


def _check_pooling(request: EmbeddingRequest, embedder: Embedder) -> None:
    pooling = request.pooling
    if pooling not in (None, embedder.pooling) and embedder.images is not None:
        raise BadRequestError(
            f"pooling: must be {embedder.pooling!r} for {embedder.model_name!r}, whose other "
            f"vectors of texts would not be like those of images, got {pooling!r}",
            param="pooling",
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


def _to_wire(
    index: int, embedded: TextEmbedding, request: EmbeddingRequest, *, normalize: bool
) -> Embedding:
    # Imported here because the module imports numpy, which only embeddings need.
    from aiomlc.runtime.embedding.pooling import l2_normalize

    vector, vectors = embedded.dense[: request.dimensions], embedded.multi_vector
    if normalize:
        vector = l2_normalize(vector)
        vectors = None if vectors is None else l2_normalize(vectors)
    sparse = embedded.sparse
    return Embedding(
        index=index,
        embedding=_to_wire_vector(vector, request),
        sparse_embedding=None
        if sparse is None
        else SparseEmbedding(indices=sparse.indices.tolist(), values=sparse.values.tolist()),
        multi_vector=None
        if vectors is None
        else [_to_wire_vector(each, request) for each in vectors],
    )


def _to_wire_vector(vector: NDArray[np.float32], request: EmbeddingRequest) -> list[float] | str:
    if request.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()

    values: list[float] = vector.tolist()
    return values
