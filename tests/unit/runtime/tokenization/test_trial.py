"""A new tokenizer is tried out in a limited process, once."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from aiomlc import ModelLoadError, RequestFailedError
from aiomlc.config import BUNDLED_MODEL
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.tokenization.tokenizer import Tokenizer


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*normalizers: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(normalizers)}


def write_tokenizer(path: Path, **sections: object) -> Path:
    """Write a byte-level tokenizer with these sections in place of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(
        models.BPE({letter: index for index, letter in enumerate(alphabet)}, [])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    config = json.loads(backend.to_str()) | sections
    file = path / "tokenizer.json"
    file.write_text(json.dumps(config))
    return file


HOSTILE = {
    "backtracking": (replace({"Regex": "(a+)+$"}, "b"), "retry-limit-in-match"),
    "empty pattern": (replace({"String": ""}, "b"), "index out of bounds"),
    "growth": (replace({"String": "a"}, "a" * 1000), "its normalizer makes"),
    "growth of another letter": (replace({"String": "☃"}, "a" * 1000), "its normalizer makes"),
    "abort": (
        sequence(*[replace({"Regex": "."}, "a" * 100) for _ in range(8)]),
        "it aborted: memory allocation of",
    ),
}


@pytest.mark.parametrize(("normalizer", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_normalizer_that_crashes_or_grows_is_refused(
    tmp_path: Path, normalizer: dict[str, Any], problem: str
) -> None:
    path = write_tokenizer(tmp_path, normalizer=normalizer)

    with pytest.raises(ModelLoadError, match=f"tokenizer.json: .* {problem}") as caught:
        Tokenizer(path)

    assert caught.value.path == path
    with pytest.raises(ModelLoadError, match=problem):
        EncoderTokenizer.from_file(path, 16)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": sequence({"type": "Prepend", "prepend": "▁"}, {"type": "Lowercase"})},
        {"normalizer": replace({"Regex": " {2,}"}, "▁")},
    ],
)
def test_an_ordinary_tokenizer_passes(tmp_path: Path, sections: dict[str, Any]) -> None:
    assert Tokenizer(write_tokenizer(tmp_path, **sections)).encode("abc")


def test_a_decoder_that_multiplies_the_vocabulary_is_refused(tmp_path: Path) -> None:
    steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": "x" * 1000}]
    path = write_tokenizer(tmp_path, decoder={"type": "Sequence", "decoders": steps})

    with pytest.raises(ModelLoadError, match="its decoder makes 1000 bytes of the token 'a'"):
        Tokenizer(path)


def test_a_token_id_beyond_every_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, model={"type": "BPE", "vocab": {"a": 2**31}, "merges": []})

    with pytest.raises(ModelLoadError, match="token ids must be < 16777216, got 2147483648"):
        Tokenizer(path)


def test_a_tokenizer_that_passed_is_not_tried_again(
    tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tokenizer(tmp_path)
    Tokenizer(path)
    monkeypatch.setattr(subprocess, "run", None)

    Tokenizer(path)
    Tokenizer(BUNDLED_MODEL / "tokenizer.json")

    assert len(list((cache_home / "tokenizers").iterdir())) == 1


def test_a_refused_tokenizer_is_tried_again(tmp_path: Path, cache_home: Path) -> None:
    path = write_tokenizer(tmp_path, normalizer=HOSTILE["growth"][0])
    for _ in range(2):
        with pytest.raises(ModelLoadError, match="its normalizer makes"):
            Tokenizer(path)

    assert not (cache_home / "tokenizers").exists()


@pytest.mark.parametrize("executable", ["/nonexistent/python", "/bin/true"])
def test_without_a_process_the_tokenizer_is_used_and_a_warning_logged(
    tmp_path: Path,
    executable: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    path = write_tokenizer(tmp_path)

    with caplog.at_level(logging.WARNING):
        assert Tokenizer(path).encode("a")

    assert "used without a trial, since no process can be started" in caplog.text


def test_a_trial_that_takes_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: object, timeout: float, **options: object) -> None:
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", run)

    with pytest.raises(ModelLoadError, match="it needed more than 60 s"):
        Tokenizer(write_tokenizer(tmp_path))


def test_a_cache_that_cannot_be_written_costs_the_memory_of_the_trial_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("AIOMLC_HOME", str(blocked / "home"))

    assert Tokenizer(write_tokenizer(tmp_path)).encode("a")


def test_a_panic_at_a_request_is_a_typed_error(tmp_path: Path) -> None:
    normalizer = replace({"Regex": "(a+)+$"}, "b")
    tokenizer = Tokenizer.from_json(write_tokenizer(tmp_path, normalizer=normalizer).read_text())

    with pytest.raises(RequestFailedError, match="the model's tokenizer failed: Onig"):
        tokenizer.encode("a" * 64 + "!")
