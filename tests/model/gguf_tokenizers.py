"""Tokenizers as metadata of GGUF files, written as llama.cpp's converter does."""

from __future__ import annotations

__all__ = ("add_byte_level", "add_sentence_piece")

import json
from collections.abc import Mapping, Sequence

import gguf
from gguf import TokenType
from tokenizers import Tokenizer


def add_byte_level(
    writer: gguf.GGUFWriter,
    tokenizer: Tokenizer,
    pre: str,
    *,
    bos: str | None = None,
    eos: str | None = None,
) -> None:
    """Add a byte-level BPE tokenizer."""
    added = tokenizer.get_added_tokens_decoder()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    types = [TokenType.NORMAL] * len(tokens)
    for index, token in added.items():
        types[index] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    if bos is not None:
        writer.add_bos_token_id(vocabulary[bos])
    if eos is not None:
        writer.add_eos_token_id(vocabulary[eos])


def add_sentence_piece(
    writer: gguf.GGUFWriter,
    pieces: Sequence[tuple[str, float, TokenType]],
    special: Mapping[str, str],
    *,
    add_space_prefix: bool = True,
) -> None:
    """Add a SentencePiece tokenizer; `special` has the text of `bos`, `eos` and `unk`."""
    tokens = [text for text, _, _ in pieces]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_bos_token_id(tokens.index(special["bos"]))
    writer.add_eos_token_id(tokens.index(special["eos"]))
    writer.add_unk_token_id(tokens.index(special["unk"]))
    writer.add_add_space_prefix(add_space_prefix)
