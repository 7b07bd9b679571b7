"""The inputs of a request to an encoder, as tokens that it accepts."""

from __future__ import annotations

__all__ = ("InputItem", "encode_inputs")

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiomlc.errors import BadRequestError, InputTooLongError
from aiomlc.runtime.embedding.encoder_tokenizer import TextPair
from aiomlc.runtime.native.encoder import EncoderInput
from aiomlc.validation.arguments import outside_vocabulary
from aiomlc.validation.json_values import short_repr

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import EncoderModel

# Texts with fewer characters are encoded without counting their tokens before.
_LONG_TEXT = 20_000

InputItem = str | TextPair | Sequence[int]
"""A text, a pair of texts, or token ids."""


def encode_inputs(
    items: Sequence[InputItem],
    model: EncoderModel,
    is_cancelled: Callable[[], bool],
    *,
    field: str = "input",
    places: Sequence[int] | None = None,
    truncate: bool = False,
) -> list[EncoderInput]:
    """Return the tokens of each item; fewer if the call is cancelled. Takes long for many items.

    Texts get the special tokens of the model; token ids are used unchanged.

    Args:
        field: The field of the request, for messages.
        places: The index of each item in this field; None if it has no others.
        truncate: Whether longer inputs are truncated.

    Raises:
        BadRequestError: If an input has no tokens, or a token id is not in the vocabulary.
        InputTooLongError: If an input is too long.
    """
    numbers = range(len(items)) if places is None else places
    numbered = zip(numbers, items, strict=True)
    return list(_encode(numbered, model, is_cancelled, field, truncate))


def _encode(
    items: Iterable[tuple[int, InputItem]],
    model: EncoderModel,
    is_cancelled: Callable[[], bool],
    field: str,
    truncate: bool,
) -> Iterator[EncoderInput]:
    for index, item in items:
        if is_cancelled():
            break

        if not truncate and isinstance(item, str | TextPair):
            _check_text(item, field, index, model, is_cancelled)
        encoded = _encode_item(item, model, truncate)
        if not isinstance(item, str | TextPair):
            _check_ids(encoded.ids, field, index, model.vocab_size)
        if not encoded.ids:
            name = f"{field}[{index}]"
            raise BadRequestError(f"{name}: must have at least one token", param=name)

        if len(encoded.ids) > model.max_tokens:
            raise InputTooLongError(
                field=field,
                index=index,
                num_tokens=len(encoded.ids),
                max_tokens=model.max_tokens,
            )

        yield encoded


def _encode_item(item: InputItem, model: EncoderModel, truncate: bool) -> EncoderInput:
    match item:
        case TextPair():
            return model.tokenizer.encode_pair(item, truncate=truncate)
        case str():
            return EncoderInput(model.tokenizer.encode(item, truncate=truncate))
        case ids:
            return EncoderInput(list(ids[: model.max_tokens] if truncate else ids))


def _check_text(
    item: str | TextPair,
    field: str,
    index: int,
    model: EncoderModel,
    is_cancelled: Callable[[], bool],
) -> None:
    """Refuse a text that is too long by far, without encoding all of it."""
    for text in [item] if isinstance(item, str) else item:
        if len(text) <= _LONG_TEXT:
            continue

        number = model.tokenizer.count_at_least(text, is_cancelled)
        if number > model.max_tokens:
            raise InputTooLongError(
                field=field,
                index=index,
                num_tokens=number,
                max_tokens=model.max_tokens,
                is_lower_bound=True,
            )


def _check_ids(ids: Sequence[int], field: str, index: int, vocab_size: int) -> None:
    if (token_id := outside_vocabulary(ids, vocab_size)) is not None:
        name = f"{field}[{index}]"
        raise BadRequestError(
            f"{name}: token ids must be in [0, {vocab_size}), got {short_repr(token_id)}",
            param=name,
        )
