"""The wire models of reranking, scores and classification.

`rerank` has the shape of Cohere's and Jina's APIs, the others have that of vLLM's.
"""

from __future__ import annotations

__all__ = (
    "Classification",
    "ClassifyRequest",
    "ClassifyResponse",
    "PairRequest",
    "RankedDocument",
    "RankingRequest",
    "RerankRequest",
    "RerankResponse",
    "RerankResult",
    "Score",
    "ScoreRequest",
    "ScoreResponse",
    "TextUsage",
    "parse_classify_request",
    "parse_rerank_request",
    "parse_score_request",
)

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
)

from aiomlc.api.protocol.base import ABSENT_IF_NONE, WireModel, parse
from aiomlc.api.protocol.embedding import to_inputs
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.request import Name, with_extra_body
from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.prompt_encoder import MAX_PROMPT_CHARACTERS
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Integer


def _to_texts(value: object) -> tuple[str, ...]:
    """Return texts as a tuple; a single text becomes a tuple of one.

    Each is a string, or an object with the field `text`, as in Cohere's and Jina's APIs.
    """
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple)) or not values:
        raise ValueError(f"must be a non-empty list of strings, got {safe_repr(value)}")

    return tuple(_to_text(index, item) for index, item in enumerate(values))


def _to_text(index: int, item: object) -> str:
    text = item.get("text") if isinstance(item, Mapping) and len(item) == 1 else item
    if not isinstance(text, str):
        raise ValueError(
            f"item {index} must be a string or an object with the field 'text' only, "
            f"got {safe_repr(item)}"
        )

    if len(text) > MAX_PROMPT_CHARACTERS:
        raise ValueError(
            f"item {index} must have at most {MAX_PROMPT_CHARACTERS} characters, got {len(text)}"
        )

    return text


Texts = Annotated[tuple[str, ...], BeforeValidator(_to_texts)]


class RankingRequest(WireModel):
    """The fields that these requests share."""

    model: Name | None = None  #: Echoed in the response.
    user: StrictStr | None = None
    #: Whether to truncate inputs that are too long; of a pair, the longer text.
    truncate: StrictBool | None = None
    #: False keeps the model's logits in place of scores between 0 and 1.
    use_activation: StrictBool | None = None


class PairRequest(RankingRequest):
    """The fields of requests for scores of pairs."""

    #: The embeddings of an encoder that are compared; None means "dense".
    similarity: Literal["dense", "sparse", "multi_vector"] | None = None


class RerankRequest(PairRequest):
    """A validated request for the documents that answer a query best."""

    query: Annotated[StrictStr, Field(max_length=MAX_PROMPT_CHARACTERS)]
    documents: Texts
    top_n: Annotated[int | None, Integer(ge=1)] = None  #: None ranks all documents.
    return_documents: StrictBool | None = None  #: Whether results have their documents' texts.


class ScoreRequest(PairRequest):
    """A validated request for the scores of pairs: each text with the one at its index.

    A single `text_1` is paired with every `text_2`.
    """

    text_1: Texts
    text_2: Texts

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs."""
        first = self.text_1 * len(self.text_2) if len(self.text_1) == 1 else self.text_1
        return list(zip(first, self.text_2, strict=True))


class ClassifyRequest(RankingRequest):
    """A validated request for the probabilities of a classifier's labels."""

    input: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(to_inputs)]


class TextUsage(WireModel):
    """Token counts over all inputs, including special tokens; no tokens are generated."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class RankedDocument(WireModel):
    """The document of a result."""

    text: str


class RerankResult(WireModel):
    """The relevance of one document."""

    index: int  #: The index of the document in the request.
    relevance_score: float
    #: With `return_documents`.
    document: Annotated[RankedDocument | None, ABSENT_IF_NONE] = None


class RerankResponse(WireModel):
    """The most relevant documents, best first; equal ones in the order of the request."""

    id: str
    model: str
    results: list[RerankResult]
    usage: TextUsage


class Score(WireModel):
    """The score of one pair."""

    index: int  #: The index of the pair.
    object: Literal["score"] = "score"
    score: float


class ScoreResponse(WireModel):
    """The scores in the order of the pairs."""

    id: str
    object: Literal["list"] = "list"
    created: int  #: Unix time in seconds.
    model: str
    data: list[Score]
    usage: TextUsage


class Classification(WireModel):
    """The probabilities of the labels for one input."""

    index: int  #: The index of the input.
    label: str  #: The label with the highest probability.
    probs: list[float]  #: In the order of the model's labels.
    num_classes: int


class ClassifyResponse(WireModel):
    """The classes in the order of the inputs."""

    id: str
    object: Literal["list"] = "list"
    created: int  #: Unix time in seconds.
    model: str
    data: list[Classification]
    usage: TextUsage


def parse_rerank_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> RerankRequest:
    """Validate the fields of a request to rerank documents.

    Args:
        ignored: Where unknown fields are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid or unknown; `param` names it.
    """
    return parse(RerankRequest, with_extra_body(fields), ignored)


def parse_score_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> ScoreRequest:
    """Validate the fields of a request to score pairs, like `parse_rerank_request`.

    In place of `text_1` and `text_2`, they may contain `pairs`.
    """
    fields = with_extra_body(fields)
    if "pairs" in fields:
        first, second = _split_pairs(fields["pairs"])
        others = {name: value for name, value in fields.items() if name != "pairs"}
        fields = {**others, "text_1": first, "text_2": second}
    request = parse(ScoreRequest, fields, ignored)
    count, expected = len(request.text_2), len(request.text_1)
    if expected not in (1, count):
        raise BadRequestError(
            f"text_2: must have as many texts as text_1 ({expected}), or text_1 one text, "
            f"got {count}",
            param="text_2",
        )

    return request


def _split_pairs(pairs: object) -> tuple[list[str], list[str]]:
    if not isinstance(pairs, (list, tuple)) or not pairs:
        raise BadRequestError(
            f"pairs: must be a non-empty list of pairs of strings, got {safe_repr(pairs)}",
            param="pairs",
        )

    for index, pair in enumerate(pairs):
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise BadRequestError(
                f"pairs[{index}]: must be a pair of strings, got {safe_repr(pair)}",
                param=f"pairs[{index}]",
            )

    first, second = zip(*pairs, strict=True)
    return list(first), list(second)


def parse_classify_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> ClassifyRequest:
    """Validate the fields of a request to classify inputs, like `parse_rerank_request`."""
    return parse(ClassifyRequest, with_extra_body(fields), ignored)
