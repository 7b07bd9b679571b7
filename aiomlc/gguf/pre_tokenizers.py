"""The pre-tokenizers of byte-level BPE, by the name in `tokenizer.ggml.pre`.

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
    adds_bos: bool = False  #: Whether a text begins with BOS, unless the file says otherwise.


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

# The letters with case of the tokenizer of DeepSeek LLM.
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}+",
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_SPARK = (
    *_DEEPSEEK_V3[:2],
    (
        rf"{_ASCII_SYMBOLS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
    ),
    r"\p{N}",
)
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINE_ENDS}"
)
_BAILING = rf"'(?i:[sdmt]|ll|ve|re)|{_LETTERS}|\p{{N}}|{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM5 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}+|{_SYMBOLS}|{_LINE_ENDS}"
_JAIS2_SPACE = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
_JAIS2 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+|{_JAIS2_SPACE}|\s"
_YOUTU = (
    (
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
        "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
    ),
    rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}|{_SLASHED}",
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
#: The pre-tokenizer of a file without a name, as in llama.cpp.
_DEFAULT = _words(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")

_NAMES: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (("default",), _DEFAULT),
    (
        (
            *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
            "lfm2",
        ),
        _words(_LLAMA3, ignore_merges=True, adds_bos=True),
    ),
    (("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _words(_LLAMA3)),
    (("qwen2", "megrez"), _words(_QWEN2, normalizer="NFC")),
    (
        ("deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "kormo", "grok-2"),
        _words(_QWEN2),
    ),
    (("qwen35",), _words(_QWEN35, normalizer="NFC")),
    (("laguna",), _words(r"[^\n]+|[\n]+", _QWEN2)),
    (("seed-coder",), _words(_SEED)),
    (
        (
            *("gpt-2", "phi-2", "exaone4", "jais", "gigachat", "mellum", "a.x-4.0", "trillion"),
            "granite-docling",
        ),
        _BYTE_LEVEL,
    ),
    (("mpt", "olmo"), _NEOX),
    (
        ("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PreTokenizer(_DIGITS),
    ),
    (("command-r",), PreTokenizer(_DIGITS, normalizer="NFC")),
    (("falcon",), PreTokenizer(_FALCON)),
    (("tekken",), _words(_TEKKEN, ignore_merges=True, adds_bos=True)),
    (("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _words(_GPT4O)),
    (("tiny_aya", "cohere2moe"), _words(r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    (("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _words(*_DEEPSEEK_V3)),
    (("deepseek-llm",), _words(*_DEEPSEEK_LLM)),
    (("spark2_5",), _words(*_SPARK)),
    (("poro-chat", "bloom", "gpt3-finnish"), _words(_BLOOM)),
    (("viking",), _words(_BLOOM, r"\p{N}")),
    (("superbpe",), _words(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    (("bailingmoe", "bailingmoe2", "llada-moe"), _words(_BAILING)),
    (("exaone-moe",), _words(_EXAONE_MOE)),
    (("minicpm5",), _words(r"\p{N}{1,3}", _MINICPM5, ignore_merges=True)),
    (("jais-2",), _words(_JAIS2)),
    (("youtu",), _words(*_YOUTU, ignore_merges=True)),
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
