"""Methods of `AsyncMLCEngine` that rank, score and classify texts."""

from __future__ import annotations

__all__ = ("AsyncRankingMixin",)

from collections.abc import Sequence
from typing import Unpack

from aiomlc.api.embeddings import EmbeddingInput
from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.limits import check_input_size, parse_off_loop
from aiomlc.api.protocol.ranking import (
    ClassifyRequest,
    ClassifyResponse,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
    parse_classify_request,
    parse_rerank_request,
    parse_score_request,
)
from aiomlc.api.ranking import RankingOptions, RerankOptions, ScoreOptions, classify, rerank, score
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.streams.pending_response import returns_pending
from aiomlc.validation.tracebacks import keeps_origin


class AsyncRankingMixin:
    """Gives an engine for async code the methods that rank, score and classify texts."""

    _lifecycle: EngineLifecycle

    @documents_options(RerankOptions)
    @returns_pending
    @keeps_origin
    async def rerank(
        self, query: str, documents: Sequence[str], **options: Unpack[RerankOptions]
    ) -> RerankResponse:
        """Return the documents that answer a query best, with their scores:

            response = await engine.rerank("How do cats sleep?", documents, top_n=3)
            best = documents[response.results[0].index]

        The model is a sequence classifier with one label, such as a cross encoder, or an encoder,
        whose embeddings are compared. Concurrent requests are batched.

        Raises:
            BadRequestError: If a field is invalid or unknown, or the model cannot score pairs.
            InputTooLongError: If query and document have more tokens than the model accepts and
                `truncate` is not set.
            EngineError: If the engine is closed.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"query": query, "documents": documents, **options}
        request = await parse_off_loop(parse_rerank_request, fields, check_input_size)
        return await rerank(self._lifecycle, request)

    @documents_options(ScoreOptions)
    @returns_pending
    @keeps_origin
    async def score(
        self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """Return the score of each pair of texts, in their order.

        The model is a sequence classifier with one label, or an encoder. The score of an encoder is
        the cosine of the embeddings, unless `similarity` selects the weights or the vectors of
        tokens that BGE M3 has.

        Raises:
            AiomlcError: As `rerank`.
        """
        fields = {"pairs": pairs, **options}
        request = await parse_off_loop(parse_score_request, fields, check_input_size)
        return await score(self._lifecycle, request)

    @documents_options(RankingOptions)
    @returns_pending
    @keeps_origin
    async def classify(
        self,
        input: EmbeddingInput,  # noqa: A002 - vLLM's name.
        **options: Unpack[RankingOptions],
    ) -> ClassifyResponse:
        """Return the probabilities of a classifier's labels for one input or several.

        An input is text or a list of token ids, as for embeddings.

        Raises:
            BadRequestError: If a field is invalid or unknown, or the model is not a classifier.
            InputTooLongError: If an input has more tokens than the model accepts and `truncate`
                is not set.
            EngineError: If the engine is closed.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"input": input, **options}
        request = await parse_off_loop(parse_classify_request, fields, check_input_size)
        return await classify(self._lifecycle, request)

    async def rank(
        self, request: RerankRequest | ScoreRequest | ClassifyRequest
    ) -> RerankResponse | ScoreResponse | ClassifyResponse:
        """Answer a validated request.

        Raises:
            AiomlcError: As the method for such requests.
        """
        match request:
            case RerankRequest():
                return await rerank(self._lifecycle, request)
            case ScoreRequest():
                return await score(self._lifecycle, request)
            case ClassifyRequest():
                return await classify(self._lifecycle, request)
