"""Methods of `MLCEngine` that rank, score and classify texts."""

from __future__ import annotations

__all__ = ("RankingMixin",)

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from aiomlc.api.embeddings import EmbeddingInput
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.ranking import ClassifyResponse, RerankResponse, ScoreResponse
from aiomlc.api.ranking import RankingOptions, RerankOptions, ScoreOptions
from aiomlc.api.streams.portal import EnginePortal


class RankingMixin:
    """Gives an engine for blocking code the methods of `AsyncRankingMixin`."""

    _engine: AsyncMLCEngine
    _portal: EnginePortal

    @documents_options(RerankOptions)
    def rerank(
        self, query: str, documents: Sequence[str], **options: Unpack[RerankOptions]
    ) -> RerankResponse:
        """Return the documents that answer a query best, like `AsyncMLCEngine.rerank`."""
        return self._portal.call(partial(self._engine.rerank, query, documents, **options))

    @documents_options(ScoreOptions)
    def score(
        self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """Return the score of each pair of texts, like `AsyncMLCEngine.score`."""
        return self._portal.call(partial(self._engine.score, pairs, **options))

    @documents_options(RankingOptions)
    def classify(
        self,
        input: EmbeddingInput,  # noqa: A002 - vLLM's name.
        **options: Unpack[RankingOptions],
    ) -> ClassifyResponse:
        """Return the probabilities of a classifier's labels, like `AsyncMLCEngine.classify`."""
        return self._portal.call(partial(self._engine.classify, input, **options))
