"""The tokenizers of encoders in GGUF files: WordPiece, and the unigram model of XLM-RoBERTa."""

from __future__ import annotations

__all__ = ("encoder_processor", "unigram_sections", "word_piece_sections", "word_pieces")

import base64
from collections.abc import Sequence
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.pre_tokenizers import Section
from aiomlc.gguf.vocabulary import TokenType, Vocabulary, token_id

_LOWERCASE: Final = "tokenizer.ggml.normalizer.lowercase"
_SCORES: Final = "tokenizer.ggml.scores"
_CHARACTER_MAP: Final = "tokenizer.ggml.precompiled_charsmap"
_ADD_SPACE: Final = "tokenizer.ggml.add_space_prefix"
_SPACE: Final = "▁"
_CONTINUATION: Final = "##"


def word_pieces(tokens: Sequence[str], types: Sequence[int]) -> list[str]:
    """Return the tokens of WordPiece, of which a GGUF file marks those that begin a word."""

    def original(token: str, kind: int) -> str:
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            return token

        return token.removeprefix(_SPACE) if token.startswith(_SPACE) else _CONTINUATION + token

    return [original(*pair) for pair in zip(tokens, types, strict=True)]


def word_piece_sections(model: GGUFModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the sections of BERT's `tokenizer.json`.

    Raises:
        ModelLoadError: If a key is invalid, or there is no unknown token.
    """
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": model.metadata.boolean(_LOWERCASE, True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": _CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": vocabulary.tokens[_required_id(model, vocabulary, "unknown")],
            "continuing_subword_prefix": _CONTINUATION,
            "max_input_chars_per_word": 100,
            "vocab": vocabulary.ids(),
        },
    }


def unigram_sections(model: GGUFModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the sections of XLM-RoBERTa's `tokenizer.json`.

    Raises:
        ModelLoadError: If a key is missing or invalid.
    """
    metadata = model.metadata
    scores, count = metadata.numbers(_SCORES), len(vocabulary.tokens)
    if len(scores) != count:
        problem = f"must have {count} entries, one per token, got {len(scores)}"
        raise metadata.error(_SCORES, problem)

    normalizers: list[Section] = [
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    ]
    if characters := metadata.integers(_CHARACTER_MAP):
        data = bytes(value & 255 for value in characters)
        character_map = base64.b64encode(data).decode()
        normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": character_map})
    scheme = "always" if metadata.boolean(_ADD_SPACE, True) else "never"
    spaces = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": scheme, "split": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": spaces,
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": _required_id(model, vocabulary, "unknown"),
            "vocab": list(zip(vocabulary.tokens, scores, strict=True)),
            "byte_fallback": False,
        },
    }


def encoder_processor(model: GGUFModel, vocabulary: Vocabulary) -> Section:
    """Return the processor that puts special tokens around a text, and between those of a pair.

    Raises:
        ModelLoadError: If there is no token for the beginning or the end.
    """
    begin, end = (_special(model, vocabulary, name) for name in ("bos", "eos"))
    has_types = vocabulary.model == "bert"
    second = int(has_types)
    first = [_token(begin, 0), _sequence("A", 0), _token(end, 0)]
    between = [] if has_types else [_token(end, 0)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *between, _sequence("B", second), _token(end, second)],
        "special_tokens": {each["id"]: each for each in (begin, end)},
    }


def _special(model: GGUFModel, vocabulary: Vocabulary, name: str) -> dict[str, Any]:
    index = _required_id(model, vocabulary, name)
    token = vocabulary.tokens[index]
    return {"id": token, "ids": [index], "tokens": [token]}


def _token(special: dict[str, Any], type_id: int) -> Section:
    return {"SpecialToken": {"id": special["id"], "type_id": type_id}}


def _sequence(name: str, type_id: int) -> Section:
    return {"Sequence": {"id": name, "type_id": type_id}}


def _required_id(model: GGUFModel, vocabulary: Vocabulary, name: str) -> int:
    index = token_id(model, name, len(vocabulary.tokens))
    if index is None:
        raise model.metadata.error(f"tokenizer.ggml.{name}_token_id", "is missing")

    return index
