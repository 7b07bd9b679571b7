"""The tokens in the metadata of a GGUF file."""

from __future__ import annotations

__all__ = ("MODELS", "TokenType", "Vocabulary", "read_vocabulary", "token_id")

import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aiomlc.gguf.model import GGUFModel
from aiomlc.validation.json_values import safe_repr

#: The supported values of `tokenizer.ggml.model`: byte-level BPE, SentencePiece's BPE, and that of
#: Gemma 4, which has the merges of the first and the spaces of the second; WordPiece and unigrams
#: of encoders.
MODELS: Final = ("gpt2", "llama", "gemma4", "bert", "t5")
_MODEL = "tokenizer.ggml.model"
_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
# Tokens that a file without types certainly has for control.
_SPECIAL = ("bos", "eos", "unknown", "padding", "eot", "eom")

_logger = logging.getLogger("aiomlc")


class TokenType(IntEnum):
    """The types of tokens in `tokenizer.ggml.token_type`."""

    UNDEFINED = 0  #: As if it were normal.
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_NUMBERS: Final = frozenset(TokenType)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens by id, which are unique, and their types."""

    model: str  #: One of `MODELS`.
    tokens: list[str]
    types: list[int]

    def ids(self) -> dict[str, int]:
        """Return the id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}


def read_vocabulary(model: GGUFModel) -> Vocabulary:
    """Read the tokens.

    Raises:
        ModelLoadError: If there is no tokenizer, its model is not supported, or it is invalid.
    """
    metadata = model.metadata
    kind = metadata.string(_MODEL)
    if kind not in MODELS:
        problem = f"must be one of {', '.join(MODELS)}, got {safe_repr(kind)}"
        raise metadata.error(_MODEL, problem)

    tokens = metadata.strings(_TOKENS)
    if not tokens:
        raise metadata.error(_TOKENS, "must have at least one token")

    types = _types(model, len(tokens))
    _make_unique(model, tokens, types)
    return Vocabulary(kind, tokens, types)


def token_id(model: GGUFModel, name: str, vocab_size: int) -> int | None:
    """Return the id of a special token such as `bos`; None if the file has none.

    Raises:
        ModelLoadError: If the id is not in the vocabulary.
    """
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in model.metadata:
        return None

    value = model.metadata.integer(key)
    if value == 2**32 - 1 or value == -1:
        return None  # What llama.cpp writes for none.

    if not 0 <= value < vocab_size:
        raise model.metadata.error(key, f"must be in [0, {vocab_size}), got {value}")

    return value


def _types(model: GGUFModel, count: int) -> list[int]:
    metadata = model.metadata
    if _TYPES not in metadata:
        types = [int(TokenType.NORMAL)] * count
        for name in _SPECIAL:
            if (index := token_id(model, name, count)) is not None:
                types[index] = TokenType.CONTROL
        return types

    types = metadata.integers(_TYPES)
    if len(types) != count:
        raise metadata.error(_TYPES, f"must have {count} entries, one per token, got {len(types)}")

    if unknown := set(types) - _NUMBERS:
        problem = f"must contain types from 0 to {max(TokenType)}, got {min(unknown)}"
        raise metadata.error(_TYPES, problem)

    return [kind or int(TokenType.NORMAL) for kind in types]


def _make_unique(model: GGUFModel, tokens: list[str], types: list[int]) -> None:
    """Rename empty tokens and repeated ones, which no text can have, to control tokens."""
    seen: set[str] = set()
    renamed = []
    for index, token in enumerate(tokens):
        if token and token not in seen:
            seen.add(token)
        else:
            renamed.append(index)
    for index in renamed:
        name = f"[UNUSED_{index}]"
        if name in seen:
            raise model.metadata.error(_TOKENS, f"has the reserved name {name}")

        tokens[index] = name
        types[index] = TokenType.CONTROL
    if renamed:
        problem = "tokens are empty or repeat another one, and are not used"
        _logger.warning("%s: %d %s", model.path, len(renamed), problem)
