"""The tokenizer of a GGUF file encodes and decodes as the tokenizer that it was made from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import gguf
import pytest
from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers as training

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.pre_tokenizers import PRE_TOKENIZERS
from aiomlc.gguf.text_files import read_tokenizer_json
from tests.model.gguf_tokenizers import add_byte_level, add_sentence_piece
from tests.unit.gguf.files import HARD_TEXTS, write_metadata

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


_BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|"
    r"'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(*patterns: str) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, _bytes(use_regex=False)])


def _bytes(*, use_regex: bool = True) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes()])


def _falcon() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            _bytes(),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )


def _viking() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_BLOOM), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            _bytes(use_regex=False),
        ]
    )


#: As in the `tokenizer.json` of Llama 3, Qwen 2, GPT-2, OLMo, StarCoder, Command R, Falcon, Mistral
#: Nemo, DeepSeek V3 and LLM, Poro, Viking, Minerva, SuperBPE, Ling, Tiny Aya and Qwen 3.5: the
#: pre-tokenizer, and whether there is a normalizer to NFC.
_ORIGINALS = {
    "llama-bpe": (_split(_LLAMA3), False),
    "qwen2": (_split(_QWEN2), True),
    "gpt-2": (_bytes(), False),
    "olmo": (_bytes(), True),
    "starcoder": (_digits(), False),
    "command-r": (_digits(), True),
    "falcon": (_falcon(), False),
    "tekken": (_split(_TEKKEN), False),
    "deepseek-v3": (
        _split(r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK_V3),
        False,
    ),
    "deepseek-llm": (
        _split(
            "[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            "[一-龥\u0800-一가-\ud7ff]+",
            r"\p{N}+",
        ),
        False,
    ),
    "poro-chat": (_split(_BLOOM), False),
    "viking": (_viking(), False),
    "minerva-7b": (_digits(), False),
    "superbpe": (_split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), False),
    "bailingmoe": (
        _split(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
        False,
    ),
    "tiny_aya": (_split(r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O), False),
    "qwen35": (
        _split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        True,
    ),
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))


def _byte_level(pre: str) -> Tokenizer:
    pre_tokenizer, has_normalizer = _ORIGINALS[pre]
    ignores_merges = pre in ("llama-bpe", "tekken")
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignores_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if has_normalizer:
        tokenizer.normalizer = normalizers.NFC()
    trainer = training.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([*HARD_TEXTS * 3], trainer)
    tokenizer.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("   ", normalized=False), AddedToken("__", normalized=False)])
    return tokenizer


@pytest.mark.parametrize("pre", _ORIGINALS)
def test_byte_level_tokenizers_equal_the_original(tmp_path: Path, pre: str) -> None:
    original = _byte_level(pre)
    path = write_metadata(
        tmp_path / "a.gguf", lambda writer: add_byte_level(writer, original, pre, eos="</s>")
    )

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    assert tokenizer.get_vocab(with_added_tokens=True) == original.get_vocab(with_added_tokens=True)
    for text in HARD_TEXTS:
        ids = original.encode(text).ids
        assert tokenizer.encode(text).ids == ids, text
        for skips in (False, True):
            assert tokenizer.decode(ids, skips) == original.decode(ids, skips), text


def _with_original(path: Path, original: Tokenizer, text: str) -> Path:
    """Write a file whose name for the pre-tokenizer is not that of `original`."""

    def fill(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, original, "gpt-2", eos="</s>")
        writer.add_string("tokenizer.huggingface.json", text)

    return write_metadata(path, fill)


def test_the_original_in_the_file_is_used(tmp_path: Path) -> None:
    original = _byte_level("llama-bpe")
    path = _with_original(tmp_path / "a.gguf", original, original.to_str())

    assert read_tokenizer_json(read_gguf(path)) == original.to_str()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"model": {}}',
        '{"model": {"vocab": {}}}',
        '{"model": {"vocab": {"a": 9999}}}',
        '{"model": {"vocab": {"!": 0}}}',  # One token of many.
        '{"model": {"vocab": {"!": [0]}}}',
    ],
)
def test_another_original_in_the_file_is_not_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    original = _byte_level("gpt-2")
    path = _with_original(tmp_path / "a.gguf", original, text)

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    assert tokenizer.encode(HARD_TEXTS[0]).ids == original.encode(HARD_TEXTS[0]).ids
    assert "tokenizer.huggingface.json has other tokens than the file" in caplog.text


def _pieces() -> list[tuple[str, float, TokenType]]:
    """Return a vocabulary of SentencePiece with byte tokens, trained on the hard texts."""
    trainer = training.BpeTrainer(vocab_size=500, show_progress=False)
    trained = Tokenizer(models.BPE())
    words = (f"▁{text}".replace(" ", "▁") for text in HARD_TEXTS if "<|" not in text)
    trained.train_from_iterator([*words] * 3, trainer)
    vocabulary = trained.get_vocab()
    learned = sorted(vocabulary, key=lambda token: (len(token) > 1, vocabulary[token]))
    known = [token for token in learned if max(token) < "\u4e00"]  # The others become bytes.
    merged = [token for token in known if len(token) > 1]
    letters = [token for token in known if len(token) == 1]
    return [
        ("<unk>", 0.0, TokenType.UNKNOWN),
        ("<s>", 0.0, TokenType.CONTROL),
        ("</s>", 0.0, TokenType.CONTROL),
        *((f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)),
        *((token, -float(rank), TokenType.NORMAL) for rank, token in enumerate(merged + letters)),
        ("<|im_end|>", -1000.0, TokenType.CONTROL),
        ("    ", -1000.0, TokenType.USER_DEFINED),
    ]


def _segment(text: str, scores: dict[str, float]) -> list[str]:
    """Return SentencePiece's segmentation by its definition: merge the best neighbors, repeat."""
    pieces = list(text)
    while True:
        pairs = [left + right for left, right in itertools.pairwise(pieces)]
        candidates = [(scores[pair], -index) for index, pair in enumerate(pairs) if pair in scores]
        if not candidates:
            return pieces

        index = -max(candidates)[1]
        pieces[index : index + 2] = [pairs[index]]


def _expected_ids(text: str, pieces: Iterable[tuple[str, float, TokenType]]) -> list[int]:
    ids = {token: index for index, (token, _, _) in enumerate(pieces)}
    scores = {token: score for token, score, kind in pieces if kind == TokenType.NORMAL}
    found: list[int] = []
    for piece in _segment("▁" + text.replace(" ", "▁"), scores) if text else []:
        if piece in scores:
            found.append(ids[piece])
        else:
            found.extend(ids[f"<0x{byte:02X}>"] for byte in piece.encode())
    return found


def test_a_sentence_piece_tokenizer_segments_by_scores(tmp_path: Path) -> None:
    pieces = _pieces()
    special = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    path = write_metadata(
        tmp_path / "a.gguf", lambda writer: add_sentence_piece(writer, pieces, special)
    )

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    plain = [text for text in HARD_TEXTS if "<" not in text and "    " not in text]
    assert len(plain) > 50
    for text in plain:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == _expected_ids(text, pieces), text
        assert tokenizer.decode(ids) == text.replace("▁", " "), text
    with_special = tokenizer.encode("a</s>")
    assert with_special.tokens == ["<s>", "▁a", "</s>"]
    assert tokenizer.decode(with_special.ids) == "a"
    assert tokenizer.encode("x    y", add_special_tokens=False).tokens[1] == "    "


def test_without_a_space_prefix_none_is_added(tmp_path: Path) -> None:
    special = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    path = write_metadata(
        tmp_path / "a.gguf",
        lambda writer: add_sentence_piece(writer, _pieces(), special, add_space_prefix=False),
    )

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    ids = tokenizer.encode(" a b", add_special_tokens=False).ids
    assert tokenizer.decode(ids) == " a b"
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]


def _gemma4() -> Tokenizer:
    """Return a tokenizer of Gemma 4's kind: spaces are letters, and merges cross words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    decoder = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(decoder)
    special = ["<unk>", "<bos>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = training.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    text = "the fox and the crow, and in the end: no cheese.\n\nThe   end 12"
    tokenizer.train_from_iterator([text, text.upper()] * 3, trainer)
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(described))


def _add_gemma4(writer: gguf.GGUFWriter, original: Tokenizer) -> None:
    described = json.loads(original.to_str())["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].__getitem__)
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256]
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_types(types + [TokenType.NORMAL] * (len(tokens) - len(types)))
    writer.add_token_merges([" ".join(merge) for merge in described["merges"]])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)  # As in some files; llama.cpp adds it nevertheless.


def test_a_tokenizer_of_gemma_4_equals_the_original(tmp_path: Path) -> None:
    original = _gemma4()
    path = write_metadata(tmp_path / "a.gguf", lambda writer: _add_gemma4(writer, original))

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    assert len(original.encode("and the end").tokens) < 4  # Of several words.
    for text in HARD_TEXTS:
        expected = original.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected, text
        assert tokenizer.decode(expected) == original.decode(expected), text
    assert tokenizer.encode("the end").tokens[0] == "<bos>"


def test_the_second_reading_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_metadata(tmp_path / "a.gguf", _fill_qwen)
    expected = (
        read_tokenizer_json(read_gguf(path)),
        ConfigFiles(path).object("generation_config.json"),
    )
    monkeypatch.setattr("aiomlc.gguf.text_files.read_vocabulary", _fail)

    again = read_tokenizer_json(read_gguf(path)), ConfigFiles(path).object("generation_config.json")

    assert again == expected


@pytest.mark.parametrize("suffix", [".tokens.json", ".tokenizer.json"])
def test_a_damaged_tokenizer_in_the_cache_is_built_again(tmp_path: Path, suffix: str) -> None:
    path = write_metadata(tmp_path / "a.gguf", _fill_qwen)
    expected = read_tokenizer_json(read_gguf(path))
    (file,) = (tmp_path / "home/tokenizers").glob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:-9] + b"x" * 9)

    assert read_tokenizer_json(read_gguf(path)) == expected


def _fail(*_: object) -> None:
    raise AssertionError("built again")


def _fill_qwen(writer: gguf.GGUFWriter) -> None:
    add_byte_level(writer, _byte_level("qwen2"), "qwen2", eos="</s>")


@pytest.mark.parametrize("has_call", [True, False])
def test_the_end_of_a_message_of_harmony_ends_no_answer(tmp_path: Path, has_call: bool) -> None:
    tokenizer = _byte_level("qwen2")
    names = ["<|start|>", "<|end|>", "<|message|>", "<|return|>", *["<|call|>"] * has_call]
    tokenizer.add_special_tokens(names)

    def fill(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, tokenizer, "qwen2", bos="<s>", eos="<|return|>")
        end = tokenizer.token_to_id("<|end|>")
        assert end is not None
        writer.add_eot_token_id(end)

    path = write_metadata(tmp_path / "a.gguf", fill)

    config = ConfigFiles(path).object("generation_config.json")
    assert config is not None
    ends = {tokenizer.id_to_token(index) for index in config["eos_token_id"]}
    expected = {"<|return|>", "<|call|>"} if has_call else {"<|return|>", "<|end|>"}
    assert ends - {"<|im_end|>"} == expected


def test_end_tokens_templates_and_sampling_come_from_the_metadata(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, _byte_level("qwen2"), "qwen2", bos="<s>", eos="</s>")
        writer.add_chat_template(
            [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
        )
        writer.add_float32("general.sampling.temp", 0.6)
        writer.add_int32("general.sampling.top_k", 20)
        writer.add_float32("general.sampling.top_p", 0.95)
        writer.add_float32("general.sampling.penalty_repeat", 1.05)

    path = write_metadata(tmp_path / "a.gguf", fill)

    ids = _byte_level("qwen2").get_vocab(with_added_tokens=True)
    assert ConfigFiles(path).object("generation_config.json") == {
        "eos_token_id": sorted([ids["</s>"], ids["<|im_end|>"]]),
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
    }
    assert ConfigFiles(path).object("tokenizer_config.json") == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": [
            {"name": "default", "template": "D"},
            {"name": "rag", "template": "R"},
        ],
    }
    assert ConfigFiles(path).object("mlc-chat-config.json") is None


def _unknown_pre(writer: gguf.GGUFWriter) -> None:
    add_byte_level(writer, _byte_level("qwen2"), "kimi-k2")


def _unknown_model(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("rwkv")


def _without_merges(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["a", "b", "ab"])


def _short_types(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    writer.add_token_types([TokenType.NORMAL])


def _bad_eos(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    writer.add_eos_token_id(2)


def _without_scores(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b"])


@pytest.mark.parametrize(
    ("fill", "problem"),
    [
        (_unknown_pre, "tokenizer.ggml.pre must be one of .*, got 'kimi-k2'"),
        (_unknown_model, "tokenizer.ggml.model must be one of gpt2, llama, .*, got 'rwkv'"),
        (_without_merges, "tokenizer.ggml.merges is missing"),
        (_short_types, "tokenizer.ggml.token_type must have 2 entries, one per token, got 1"),
        (_bad_eos, r"tokenizer.ggml.eos_token_id must be in \[0, 2\), got 2"),
        (_without_scores, "tokenizer.ggml.scores must have 2 entries, one per token, got 0"),
        (lambda _: None, "tokenizer.ggml.model is missing"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_key(
    tmp_path: Path, fill: object, problem: str
) -> None:
    assert callable(fill)
    path = write_metadata(tmp_path / "a.gguf", fill)

    with pytest.raises(ModelLoadError, match=f"{path}: {problem}"):
        read_tokenizer_json(read_gguf(path))


def test_a_file_without_the_name_of_a_pre_tokenizer_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "ab"])
        writer.add_token_merges(["a b"])

    path = write_metadata(tmp_path / "a.gguf", fill)

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    assert tokenizer.encode("abba").ids == [2, 1, 0]
    assert "tokenizer.ggml.pre is missing" in caplog.text


def test_empty_and_repeated_tokens_are_not_used(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["a", "", "b", "a"])

    path = write_metadata(tmp_path / "a.gguf", fill)

    tokenizer = Tokenizer.from_str(read_tokenizer_json(read_gguf(path)))

    assert tokenizer.encode("ab").ids == [0, 2]
    assert tokenizer.decode([0, 1, 2, 3]) == "ab"
    assert tokenizer.get_vocab_size() == 4


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_only_splits_text(pre: str) -> None:
    described = json.loads(Tokenizer(models.BPE()).to_str())
    sections = [each for each in PRE_TOKENIZERS[pre].sections if each["type"] != "ByteLevel"]
    described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": sections}
    splitter = Tokenizer.from_str(json.dumps(described)).pre_tokenizer

    for text in HARD_TEXTS:
        assert "".join(word for word, _ in splitter.pre_tokenize_str(text)) == text
