"""GGUF files for tests, with any metadata and no weights."""

from __future__ import annotations

__all__ = ("HARD_TEXTS", "write_metadata")

from collections.abc import Callable
from pathlib import Path

import gguf

#: Texts that tokenizers treat in different ways.
HARD_TEXTS = (
    *(
        "",
        " ",
        "  ",
        "a",
        " a",
        "a ",
        "\n",
        "\n\n",
        "\r\n",
        "\t\t x",
        "Hello world",
        "hello   world",
    ),
    *("   leading", "trailing   ", "a\nb\n\n\nc", " \n ", "\u00a0nbsp", "\u3000wide", "\u200bzero"),
    *("It's we'll I'D they'VE don't", "x1 22 333 4444 55555", "3.14159", "1,000,000", "٣٤٥ ½ Ⅷ"),
    *("naïve café", "cafe\u0301", "ñandú ÅNGSTRÖM", "Straße", "İstanbul", "ﬁne", "Ω≈ç√∫"),
    *(
        "中文字符",
        "日本語テスト",
        "한국어 문장",
        "עברית",
        "العربية",
        "ไทย",
        "हिन्दी",
        "Привет, мир!",
    ),
    *("🙂", "👩‍👩‍👧‍👦 🇨🇭", "emoji 🎉🎉 text", "\U0001f9d1\U0001f3fd", "\ufffd", "\x00\x01\x7f"),
    *("!!!???...", "a+b==c && d||e", "{'x': [1, 2], \"y\": null}", "https://x.y/z?a=1&b=2#c"),
    *(
        "def f(x):\n    return x  # ok\n",
        "\t\tif (a) {\n\t\t}\n",
        "a/b\\c",
        "<b>bold</b>",
        "__init__",
    ),
    *("<s>", "</s>", "<|im_start|>user\nhi<|im_end|>", "a<|im_end|>b", " <|im_end|> ", "▁a▁▁b"),
    *("camelCaseWords SCREAMING_SNAKE", "aaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 40, "$€£¥ 5%"),
)


def write_metadata(
    path: Path, fill: Callable[[gguf.GGUFWriter], object], architecture: str = "llama"
) -> Path:
    """Write a file with the metadata that `fill` adds."""
    writer = gguf.GGUFWriter(path, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
