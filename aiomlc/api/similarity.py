"""Scores of pairs of texts by their embeddings, which an encoder without a head for scores has."""

from __future__ import annotations

__all__ = ("compare_pairs",)

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from anyio import to_thread

from aiomlc.api.embeddings import token_outputs
from aiomlc.api.protocol.ranking import PairRequest
from aiomlc.runtime.concurrency.worker_thread import run_in_worker

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Embedder
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
    from aiomlc.runtime.embedding.similarity import Similarity, TextEmbedding
    from aiomlc.runtime.native.encoder import EncoderInput

#: Tokens whose vectors are kept at a time; those of BGE M3 have 32 MB.
_PART_TOKENS: Final = 8192
# As in sentence-transformers.
_QUERY_PROMPTS: Final = ("query",)
_DOCUMENT_PROMPTS: Final = ("document", "passage", "corpus")


async def compare_pairs(
    engine: EncoderEngine, request: PairRequest, pairs: Sequence[tuple[str, str]], field: str
) -> tuple[list[float], int]:
    """Return the score of each pair, and the number of tokens that were embedded.

    The first text of a pair gets the model's prompt for queries, the second the one for documents.

    Args:
        field: The field of the request with the pairs, for messages.

    Raises:
        AiomlcError: As `AsyncMLCEngine.score`.
    """
    embedder = cast("Embedder", engine.model)
    by: Similarity = request.similarity or "dense"
    outputs = token_outputs(
        embedder,
        sparse="similarity" if by == "sparse" else None,
        multi_vector="similarity" if by == "multi_vector" else None,
    )
    # A query with many documents is embedded once.
    queries = [query for query, _ in pairs]
    queries = queries[:1] if len(set(queries)) == 1 else queries
    documents = [document for _, document in pairs]
    with engine.request():
        encode = partial(_encode, embedder, request, field)
        first = await run_in_worker(partial(encode, queries, _QUERY_PROMPTS))
        second = await run_in_worker(partial(encode, documents, _DOCUMENT_PROMPTS))
        embed = partial(embedder.embed, pooling=embedder.pooling, outputs=outputs)
        scores: list[float] = []
        query = await embed(first) if len(first) == 1 else []
        for begin, end in _parts(second):
            others = query * (end - begin) or await embed(first[begin:end])
            embedded = await embed(second[begin:end])
            scores += await to_thread.run_sync(_compare, others, embedded, by)
    return scores, sum(len(each.ids) for each in (*first, *second))


def _encode(
    embedder: Embedder,
    request: PairRequest,
    field: str,
    texts: Sequence[str],
    prompts: Sequence[str],
    is_cancelled: Callable[[], bool],
) -> list[EncoderInput]:
    # Imported here because the module imports numpy, which only encoders need.
    from aiomlc.runtime.embedding.input_encoder import encode_inputs

    names = (name for name in (*prompts, embedder.default_prompt) if name in embedder.prompts)
    name = next(names, None)
    prompt = "" if name is None else embedder.prompts[name]
    items = [prompt + text for text in texts]
    return encode_inputs(
        items, embedder, is_cancelled, field=field, truncate=bool(request.truncate)
    )


def _parts(inputs: Sequence[EncoderInput]) -> Iterator[tuple[int, int]]:
    """Yield ranges of inputs with at most `_PART_TOKENS` tokens, or with one input."""
    begin, tokens = 0, 0
    for index, each in enumerate(inputs):
        tokens += len(each.ids)
        if tokens > _PART_TOKENS and index > begin:
            yield begin, index
            begin, tokens = index, len(each.ids)
    yield begin, len(inputs)


def _compare(
    queries: Sequence[TextEmbedding], documents: Sequence[TextEmbedding], by: Similarity
) -> list[float]:
    from aiomlc.runtime.embedding.similarity import similarity

    return [similarity(*pair, by) for pair in zip(queries, documents, strict=True)]
