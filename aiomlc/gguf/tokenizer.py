"""The `tokenizer.json` that the tokenizer of a GGUF file was made from."""

from __future__ import annotations

__all__ = ("TOKENIZER_VERSION", "tokenizer_json")

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from aiomlc.gguf.encoder_tokenizers import (
    encoder_processor,
    unigram_sections,
    word_piece_sections,
    word_pieces,
)
from aiomlc.gguf.merges import merges_from_scores
from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer, Section
from aiomlc.gguf.vocabulary import TokenType, Vocabulary, token_id
from aiomlc.validation.json_values import safe_repr

#: Part of the identity of a built tokenizer; raised whenever the same metadata gives another one.
TOKENIZER_VERSION: Final = 5

_ORIGINAL: Final = "tokenizer.huggingface.json"
_PRE: Final = "tokenizer.ggml.pre"
_MERGES: Final = "tokenizer.ggml.merges"
_SCORES: Final = "tokenizer.ggml.scores"
_ADD_BOS: Final = "tokenizer.ggml.add_bos_token"
_ADD_EOS: Final = "tokenizer.ggml.add_eos_token"
_ADD_SPACE: Final = "tokenizer.ggml.add_space_prefix"
_SPACE: Final = "▁"
# The special tokens of Phi 3 that the white space after them is not a part of.
_PHI3_WITHOUT_STRIP: Final = ("<unk>", "<s>", "<|endoftext|>")

_logger = logging.getLogger("aiomlc")


def tokenizer_json(model: GGUFModel, vocabulary: Vocabulary) -> bytes:
    """Return the contents of a `tokenizer.json`.

    A file may contain the `tokenizer.json` that its tokenizer was made from, which says more: how
    text is normalized, or that whole words are looked up. Whether BOS and EOS are added to a text
    is taken from the file itself if it says that.

    Raises:
        ModelLoadError: If the tokenizer is not supported, or a key is missing or invalid.
    """
    if _ORIGINAL in model.metadata:
        original = model.metadata.string(_ORIGINAL)
        if _has_tokens(original, vocabulary):
            if _ADD_BOS not in model.metadata and _ADD_EOS not in model.metadata:
                return original.encode()

            processor = _post_processor(model, vocabulary)
            return orjson.dumps({**orjson.loads(original), "post_processor": processor})

        _logger.warning("%s: %s has other tokens than the file: not used", model.path, _ORIGINAL)

    if vocabulary.model == "bert":
        pieces = word_pieces(vocabulary.tokens, vocabulary.types)
        vocabulary = replace(vocabulary, tokens=pieces)
    sections = _BUILDERS[vocabulary.model](model, vocabulary)
    is_encoder = vocabulary.model in ("bert", "t5")
    processor = (encoder_processor if is_encoder else _post_processor)(model, vocabulary)
    return orjson.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added_tokens(model, vocabulary),
            "post_processor": processor,
            **sections,
        }
    )


def _has_tokens(original: str, vocabulary: Vocabulary) -> bool:
    """Return whether the contents of a `tokenizer.json` have the tokens of the file.

    A token that is unused in the file, such as one that fills the vocabulary up, may be missing.
    """
    try:
        described = orjson.loads(original)
        ids = dict(described["model"]["vocab"])
        ids |= {token["content"]: token["id"] for token in described.get("added_tokens", ())}
    except (ValueError, KeyError, TypeError, AttributeError):
        return False

    expected = vocabulary.ids()
    if any(expected.get(token) != index for token, index in ids.items()):
        return False

    return all(
        token in ids or vocabulary.types[index] == TokenType.UNUSED
        for token, index in expected.items()
    )


def _added_tokens(model: GGUFModel, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    special = (TokenType.CONTROL, TokenType.UNKNOWN)
    strips = model.architecture == "phi3" and vocabulary.model == "llama"
    return [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": strips and kind in special and token not in _PHI3_WITHOUT_STRIP,
            "normalized": False,
            "special": kind in special,
        }
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (*special, TokenType.USER_DEFINED)
    ]


def _post_processor(model: GGUFModel, vocabulary: Vocabulary) -> Section | None:
    """Return the processor that adds the tokens at the beginning and end of a text."""
    single: list[Section] = [{"Sequence": {"id": "A", "type_id": 0}}]
    pair: list[Section] = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    special: dict[str, Section] = {}
    for key, name in ((_ADD_BOS, "bos"), (_ADD_EOS, "eos")):
        index = token_id(model, name, len(vocabulary.tokens))
        default = name == "bos" and _adds_bos(model, vocabulary)
        # As in llama.cpp, text of Gemma 4 begins with BOS even if the file denies it.
        always = name == "bos" and vocabulary.model == "gemma4"
        if index is None or not (always or model.metadata.boolean(key, default)):
            continue

        token = vocabulary.tokens[index]
        special[token] = {"id": token, "ids": [index], "tokens": [token]}
        for type_id, template in enumerate((single, pair)):
            item = {"SpecialToken": {"id": token, "type_id": type_id if name == "eos" else 0}}
            template.insert(0 if name == "bos" else len(template), item)
    if not special:
        return None

    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": special,
    }


def _adds_bos(model: GGUFModel, vocabulary: Vocabulary) -> bool:
    """Return whether a text begins with BOS if the file does not say it, as in llama.cpp."""
    if vocabulary.model in ("llama", "gemma4"):
        return True

    pre_tokenizer = PRE_TOKENIZERS.get(model.metadata.string(_PRE, "default"))
    return pre_tokenizer is not None and pre_tokenizer.adds_bos


def _byte_level_sections(model: GGUFModel, vocabulary: Vocabulary) -> dict[str, Any]:
    pre_tokenizer = _pre_tokenizer(model)
    normalizer = pre_tokenizer.normalizer
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    return {
        "normalizer": None if normalizer is None else {"type": normalizer},
        "pre_tokenizer": _sequence("pretokenizers", pre_tokenizer.sections),
        "decoder": decoder | {"use_regex": True},
        "model": _bpe(
            vocabulary,
            _stored_merges(model, vocabulary),
            ignore_merges=pre_tokenizer.ignore_merges,
        ),
    }


def _pre_tokenizer(model: GGUFModel) -> PreTokenizer:
    if _PRE not in model.metadata:
        _logger.warning(
            "%s: %s is missing, as in files of early 2024 and before; text may be tokenized "
            "differently than the model expects",
            model.path,
            _PRE,
        )
    name = model.metadata.string(_PRE, "default")
    if name not in PRE_TOKENIZERS:
        problem = f"must be one of {', '.join(sorted(PRE_TOKENIZERS))}, got {safe_repr(name)}"
        raise model.metadata.error(_PRE, problem)

    return PRE_TOKENIZERS[name]


def _stored_merges(model: GGUFModel, vocabulary: Vocabulary) -> list[Sequence[str]]:
    """Return the merges whose tokens exist; a file may have a vocabulary that was cut."""
    merges = [merge.split(" ") for merge in model.metadata.strings(_MERGES)]
    if not merges and _has_merged_tokens(vocabulary):
        raise model.metadata.error(_MERGES, "is missing")

    known = set(vocabulary.tokens)
    for index, merge in enumerate(merges):
        if len(merge) != 2:
            problem = f"must be two tokens and a space, got {safe_repr(' '.join(merge))}"
            raise model.metadata.error(f"{_MERGES}[{index}]", problem)

    return [
        merge
        for merge in merges
        if merge[0] in known and merge[1] in known and merge[0] + merge[1] in known
    ]


def _has_merged_tokens(vocabulary: Vocabulary) -> bool:
    typed = zip(vocabulary.tokens, vocabulary.types, strict=True)
    return any(kind == TokenType.NORMAL and len(token) > 1 for token, kind in typed)


def _sentence_piece_sections(model: GGUFModel, vocabulary: Vocabulary) -> dict[str, Any]:
    has_merges = vocabulary.model == "gemma4"
    has_prefix = model.metadata.boolean(_ADD_SPACE, not has_merges)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefix = ({"type": "Prepend", "prepend": _SPACE},) if has_prefix else ()
    strip = ({"type": "Strip", "content": " ", "start": 1, "stop": 0},) if has_prefix else ()
    texts = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    decoders = (texts, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip)
    unknown = token_id(model, "unknown", len(vocabulary.tokens))
    return {
        "normalizer": _sequence("normalizers", (*prefix, spaces)),
        "pre_tokenizer": None,
        "decoder": _sequence("decoders", decoders),
        "model": _bpe(
            vocabulary,
            (_stored_merges if has_merges else _scored_merges)(model, vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        ),
    }


def _scored_merges(model: GGUFModel, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    scores = model.metadata.numbers(_SCORES)
    count = len(vocabulary.tokens)
    if len(scores) != count:
        problem = f"must have {count} entries, one per token, got {len(scores)}"
        raise model.metadata.error(_SCORES, problem)

    pieces = [index for index, kind in enumerate(vocabulary.types) if kind == TokenType.NORMAL]
    return merges_from_scores(vocabulary.tokens, scores, pieces)


def _sequence(members: str, sections: Sequence[Section]) -> Section:
    return dict(sections[0]) if len(sections) == 1 else {"type": "Sequence", members: [*sections]}


def _bpe(vocabulary: Vocabulary, merges: Iterable[Sequence[str]], **options: Any) -> Section:  # noqa: ANN401 - JSON.
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **options,
        "vocab": vocabulary.ids(),
        "merges": list(merges),
    }


_BUILDERS: Mapping[str, Callable[[GGUFModel, Vocabulary], dict[str, Any]]] = {
    "gpt2": _byte_level_sections,
    "llama": _sentence_piece_sections,
    "gemma4": _sentence_piece_sections,
    "bert": word_piece_sections,
    "t5": unigram_sections,
}
