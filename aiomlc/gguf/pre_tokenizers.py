"""How byte-level BPE tokenizers split text into words, by the name in `tokenizer.ggml.pre`.

A GGUF file only has a name for what the original `tokenizer.json` describes. The names and the
expressions are those of llama.cpp; the sections are those of the original files.
"""

from __future__ import annotations

__all__ = ("PRE_TOKENIZERS", "PreTokenizer")

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Section = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The sections of a `tokenizer.json` that depend on the name."""

    sections: tuple[Section, ...]  #: Applied in this order.
    normalizer: str | None = None  #: The type of the normalizer, if there is one.
    ignore_merges: bool = False  #: Whether a word that is a token is not merged from its bytes.


def _split(pattern: str) -> Section:
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": "Isolated", "invert": False}


def _digits(*, individual: bool) -> Section:
    return {"type": "Digits", "individual_digits": individual}


def _byte_level(*, use_regex: bool) -> Section:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _words(*patterns: str, **options: Any) -> PreTokenizer:  # noqa: ANN401 - fields of the class.
    sections = (*map(_split, patterns), _byte_level(use_regex=False))
    return PreTokenizer(sections, **options)


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINE_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_LINE_ENDS}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_SYMBOLS}|{_LINE_ENDS}"
_SEED = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINE_ENDS}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
)
_SLASHED = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINE_ENDS}"
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_SLASHED}"
_GPT4O = rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SLASHED}"

_ASCII_SYMBOLS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    (
        rf"{_ASCII_SYMBOLS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINE_ENDS}"
    ),
)
_DEEPSEEK_CODER = (
    *(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+"),
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
)

_BYTE_LEVEL = PreTokenizer((_byte_level(use_regex=True),))
_NEOX = PreTokenizer((_byte_level(use_regex=True),), normalizer="NFC")
_DIGITS = (_digits(individual=True), _byte_level(use_regex=True))
_FALCON = (
    {"type": "Punctuation", "behavior": "Contiguous"},
    _byte_level(use_regex=True),
    _digits(individual=False),
    _split("[0-9][0-9][0-9]"),
)
#: What llama.cpp uses for a file without a name.
_DEFAULT = _words(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")

_NAMES: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (("default",), _DEFAULT),
    (
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"),
        _words(_LLAMA3, ignore_merges=True),
    ),
    (("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _words(_LLAMA3)),
    (("qwen2", "megrez"), _words(_QWEN2, normalizer="NFC")),
    (("deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "kormo"), _words(_QWEN2)),
    (("seed-coder",), _words(_SEED)),
    (
        ("gpt-2", "phi-2", "exaone4", "jais", "gigachat", "mellum", "a.x-4.0", "trillion"),
        _BYTE_LEVEL,
    ),
    (("mpt", "olmo"), _NEOX),
    (("starcoder", "refact", "smollm", "codeshell", "exaone"), PreTokenizer(_DIGITS)),
    (("command-r",), PreTokenizer(_DIGITS, normalizer="NFC")),
    (("falcon",), PreTokenizer(_FALCON)),
    (("tekken",), _words(_TEKKEN, ignore_merges=True)),
    (("gpt-4o", "llama4", "kanana2"), _words(_GPT4O)),
    (("deepseek-v3", "hunyuan-dense"), _words(*_DEEPSEEK_V3)),
    (
        ("deepseek-coder",),
        PreTokenizer(
            (
                *map(_split, _DEEPSEEK_CODER),
                _digits(individual=True),
                _byte_level(use_regex=False),
            )
        ),
    ),
)

#: By `tokenizer.ggml.pre`.
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {name: pre_tokenizer for names, pre_tokenizer in _NAMES for name in names}
)
