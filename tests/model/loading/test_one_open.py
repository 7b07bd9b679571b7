"""An open model has read each of its files once, and derived each fact once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.compiler.parameters import pack_parameters
from aiomlc.config import BUNDLED_MODEL
from aiomlc.models import decoder_parameters, describe_model, encoder_parameters
from aiomlc.runtime.loading.quantization import find_quantization
from aiomlc.runtime.loading.text_files import read_tokenizer
from aiomlc.weights.formats.directory import read_source
from tests.model.gguf_files import write_tiny_gguf
from tests.model.tiny_encoder import write_encoder

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("model_cache")]
DERIVATIONS: tuple[Callable[..., Any], ...] = (
    describe_model,
    read_source,
    find_quantization,
    decoder_parameters,
    encoder_parameters,
    pack_parameters,
    read_tokenizer,
)
DECODER = {each.__name__ for each in DERIVATIONS} - {"encoder_parameters"}
ENCODER = {each.__name__ for each in DERIVATIONS} - {"decoder_parameters", "read_tokenizer"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of the derivations, in whichever module they are."""
    counts: Counter[str] = Counter()

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def count(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any function.
            counts[function.__name__] += 1
            return function(*arguments, **options)

        return count

    modules = [module for name, module in sys.modules.items() if name.startswith("aiomlc.")]
    for function in DERIVATIONS:
        for module in modules:
            if getattr(module, function.__name__, None) is function:
                monkeypatch.setattr(module, function.__name__, counting(function))

    return counts


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often the files of models are opened, by name."""
    counts: Counter[str] = Counter()
    system_open = os.open

    def open_counted(path: Any, *arguments: Any, **options: Any) -> int:  # noqa: ANN401
        is_config = isinstance(path, Path) and path.suffix in (".json", ".jinja", ".gguf")
        if is_config and "aiomlc_home" not in path.parts:
            counts[str(path)] += 1
        return system_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_counted)
    return counts


async def _open(model: Path, **options: Any) -> None:  # noqa: ANN401 - fields of EngineConfig.
    config = EngineConfig(num_threads=1, **options)
    async with AsyncMLCEngine(str(model), engine_config=config):
        pass


async def test_a_hugging_face_directory(
    tiny_directory: Callable[[str], Path], calls: Counter[str], reads: Counter[str]
) -> None:
    await _open(tiny_directory("llama"))

    assert calls == dict.fromkeys(DECODER, 1)
    assert max(reads.values()) == 1
    assert {"config.json", "tokenizer.json"} <= {Path(path).name for path in reads}


async def test_a_gguf_file(
    tmp_path: Path, calls: Counter[str], reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the file had not just been written: a later change could not be noticed.
    monkeypatch.setattr("aiomlc.gguf.model.is_settled", lambda _: True)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")

    await _open(path)

    assert calls == dict.fromkeys(DECODER, 1)
    # The metadata, and the tensor that has the frequencies of RoPE.
    assert reads[str(path)] == 2


async def test_an_mlc_directory_with_a_draft(calls: Counter[str], reads: Counter[str]) -> None:
    await _open(BUNDLED_MODEL, speculative_mode="small_draft")

    # Two models; and both have the same tokens, which is checked.
    assert calls == dict.fromkeys(DECODER, 2)
    assert max(reads.values()) == 1


async def test_an_encoder(tmp_path: Path, calls: Counter[str], reads: Counter[str]) -> None:
    await _open(write_encoder(tmp_path / "encoder"))

    assert calls == dict.fromkeys(ENCODER, 1)
    assert max(reads.values()) == 1
