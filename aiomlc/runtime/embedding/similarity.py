"""The similarity of two texts by their embeddings."""

from __future__ import annotations

__all__ = ("Similarity", "TextEmbedding", "similarity")

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from aiomlc.runtime.embedding.pooling import l2_normalize
from aiomlc.runtime.embedding.token_heads import SparseVector

if TYPE_CHECKING:
    from numpy.typing import NDArray

Similarity = Literal["dense", "sparse", "multi_vector"]
"""What is compared: vectors of texts, weights of tokens, or vectors of tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class TextEmbedding:
    """The embeddings of one text; None for those that were not asked for."""

    dense: NDArray[np.float32]  #: `[size]`, not normalized.
    sparse: SparseVector | None = None
    multi_vector: NDArray[np.float32] | None = None  #: `[tokens - 1, size]`, not normalized.


def similarity(query: TextEmbedding, document: TextEmbedding, by: Similarity) -> float:
    """Return how well a document matches a query, as FlagEmbedding defines it.

    By `dense`, it is the cosine of the angle between the vectors; by `sparse`, each token that
    both texts have adds the product of its weights; by `multi_vector`, it is the cosine of each
    token of the query with the token of the document that is most like it, averaged over the query.
    """
    match by:
        case "dense":
            units = l2_normalize(np.stack([query.dense, document.dense])).astype(np.float64)
            return float(np.dot(units[0], units[1]))
        case "sparse":
            assert query.sparse is not None
            assert document.sparse is not None
            return _lexical_match(query.sparse, document.sparse)
        case "multi_vector":
            assert query.multi_vector is not None
            assert document.multi_vector is not None
            return _late_interaction(query.multi_vector, document.multi_vector)


def _lexical_match(query: SparseVector, document: SparseVector) -> float:
    _, first, second = np.intersect1d(
        query.indices, document.indices, assume_unique=True, return_indices=True
    )
    return float(np.dot(query.values[first].astype(np.float64), document.values[second]))


def _late_interaction(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """Return 0 if a text has no token after the first one."""
    if not len(query) or not len(document):
        return 0.0

    cosines = l2_normalize(query) @ l2_normalize(document).T
    return float(cosines.max(axis=1).mean(dtype=np.float64))
