"""Ranked documents, scores of pairs, and classes of texts, by a sequence classifier.

Documents and pairs may be scored by embeddings, too.
"""

from __future__ import annotations

__all__ = ("RankingOptions", "RerankOptions", "ScoreOptions", "classify", "rerank", "score")

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict, cast

from aiomlc.api.protocol.ranking import (
    Classification,
    ClassifyRequest,
    ClassifyResponse,
    PairRequest,
    RankedDocument,
    RankingRequest,
    RerankRequest,
    RerankResponse,
    RerankResult,
    Score,
    ScoreRequest,
    ScoreResponse,
    TextUsage,
)
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.similarity import compare_pairs
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.validation.parameter import Doc

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Classifier
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
    from aiomlc.runtime.native.encoder import EncoderInput

Encode: TypeAlias = "Callable[[RankingRequest, Classifier, Callable[[], bool]], list[EncoderInput]]"
"""Returns the tokens of all inputs. Runs in a worker thread."""


class RankingOptions(TypedDict, total=False):
    """The optional fields of a request to a sequence classifier."""

    model: Annotated[str | None, Doc("A name that the response repeats.")]
    user: Annotated[str | None, Doc("A label without effect.")]
    truncate: Annotated[bool | None, Doc("Whether longer inputs are truncated (False).")]
    use_activation: Annotated[bool | None, Doc("False keeps the model's logits (True).")]
    extra_body: Annotated[Mapping[str, Any] | None, Doc("Further fields, merged with the others.")]


class ScoreOptions(RankingOptions, total=False):
    """The optional fields of a request for scores of pairs."""

    similarity: Annotated[
        Literal["dense", "sparse", "multi_vector"] | None,
        Doc('Which embeddings of an encoder are compared ("dense").'),
    ]


class RerankOptions(ScoreOptions, total=False):
    """The optional fields of a request to rerank documents."""

    top_n: Annotated[int | None, Doc("The number of results (all documents).")]
    return_documents: Annotated[bool | None, Doc("Whether results have the texts (False).")]


async def rerank(service: SessionProvider, request: RerankRequest) -> RerankResponse:
    """Rank the documents of a validated request.

    Raises:
        AiomlcError: As `AsyncMLCEngine.rerank`.
    """
    pairs = [(request.query, document) for document in request.documents]
    scored = await _score_pairs(service, request, pairs, "documents")
    order = sorted(range(len(pairs)), key=lambda index: -scored.values[index][0])
    texts = request.documents if request.return_documents else None
    return RerankResponse(
        id=f"rerank-{uuid.uuid4().hex}",
        model=scored.model,
        results=[
            RerankResult(
                index=index,
                relevance_score=scored.values[index][0],
                document=None if texts is None else RankedDocument(text=texts[index]),
            )
            for index in order[: request.top_n]
        ],
        usage=scored.usage,
    )


async def score(service: SessionProvider, request: ScoreRequest) -> ScoreResponse:
    """Score the pairs of a validated request.

    Raises:
        AiomlcError: As `AsyncMLCEngine.score`.
    """
    scored = await _score_pairs(service, request, request.pairs, "pairs")
    return ScoreResponse(
        id=f"score-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=scored.model,
        data=[Score(index=index, score=row[0]) for index, row in enumerate(scored.values)],
        usage=scored.usage,
    )


async def classify(service: SessionProvider, request: ClassifyRequest) -> ClassifyResponse:
    """Classify the inputs of a validated request.

    Raises:
        AiomlcError: As `AsyncMLCEngine.classify`.
    """
    engine = await service.encoder("classification")
    scored = await _run(engine, request, partial(_encode_texts, request.input))
    labels = cast("Classifier", engine.model).labels
    return ClassifyResponse(
        id=f"classify-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=scored.model,
        data=[
            Classification(
                index=index,
                label=labels[row.index(max(row))],
                probs=row,
                num_classes=len(labels),
            )
            for index, row in enumerate(scored.values)
        ],
        usage=scored.usage,
    )


class _Scored:
    """The scores of all inputs, and what every response says of them."""

    def __init__(self, model: str, num_tokens: int, values: list[list[float]]) -> None:
        self.model = model
        self.usage = TextUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        self.values = values


async def _score_pairs(
    service: SessionProvider,
    request: PairRequest,
    pairs: Sequence[tuple[str, str]],
    field: str,
) -> _Scored:
    engine = await service.encoder("ranking")
    if "embedding" in engine.model.tasks:
        scores, num_tokens = await compare_pairs(engine, request, pairs, field)
        name = request.model or engine.model.model_name
        return _Scored(name, num_tokens, [[each] for each in scores])

    if request.similarity is not None:
        raise BadRequestError(
            f"similarity: the model {engine.model.model_name!r} is a classifier, which has no "
            "embeddings to compare: leave it out",
            param="similarity",
        )

    classifier = cast("Classifier", engine.model)
    if len(classifier.labels) != 1:
        raise BadRequestError(
            f"the model {classifier.model_name!r} has {len(classifier.labels)} labels; scores need "
            "a model with one: use `classify`",
            param="model",
        )

    return await _run(engine, request, partial(_encode_pairs, pairs, field))


async def _run(engine: EncoderEngine, request: RankingRequest, encode: Encode) -> _Scored:
    classifier = cast("Classifier", engine.model)
    with engine.request():
        inputs = await run_in_worker(partial(encode, request, classifier))
        activation = "identity" if request.use_activation is False else classifier.activation
        vectors = await classifier.classify(inputs, activation)
    num_tokens = sum(len(each.ids) for each in inputs)
    values: list[list[float]] = [vector.tolist() for vector in vectors]
    return _Scored(request.model or classifier.model_name, num_tokens, values)


def _encode_pairs(
    pairs: Sequence[tuple[str, str]],
    field: str,
    request: RankingRequest,
    classifier: Classifier,
    is_cancelled: Callable[[], bool],
) -> list[EncoderInput]:
    # Imported here because the modules import numpy, which only encoders need.
    from aiomlc.runtime.embedding.encoder_tokenizer import TextPair
    from aiomlc.runtime.embedding.input_encoder import encode_inputs

    items = [TextPair(*pair) for pair in pairs]
    truncate = bool(request.truncate)
    return encode_inputs(items, classifier, is_cancelled, field=field, truncate=truncate)


def _encode_texts(
    texts: Sequence[str | Sequence[int]],
    request: RankingRequest,
    classifier: Classifier,
    is_cancelled: Callable[[], bool],
) -> list[EncoderInput]:
    from aiomlc.runtime.embedding.input_encoder import encode_inputs

    return encode_inputs(texts, classifier, is_cancelled, truncate=bool(request.truncate))
