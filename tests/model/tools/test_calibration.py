"""The search with a calibration text weighs the errors by the activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError
from aiomlc.tools.activations import measure_importance
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.source_model import read_source_model
from tests.model.tiny_models import tiny_weights
from tests.model.tools.models import read_tensors, write_tiny

pytestmark = pytest.mark.anyio

TEXT = "The quick brown fox jumps over the lazy dog.\n\nA second passage, 0123456789.\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path, TEXT.encode())


def write_text(directory: Path, content: bytes) -> Path:
    path = directory / "text.txt"
    path.write_bytes(content)
    return path


def normed_embeddings(weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return the inputs of the first layer's projections for the tokens of the text."""
    ids = [_token(character) for character in TEXT if character != "\n"]
    rows = weights["model.embed_tokens.weight"][ids].astype(np.float64)
    rows /= np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + 1e-5)
    normed: NDArray[np.float64] = rows * weights["model.layers.0.input_layernorm.weight"]
    return normed


def _token(character: str) -> int:
    from tests.model.tiny_models import tiny_tokenizer

    (token,) = tiny_tokenizer().encode(character).ids
    return token


@pytest.mark.usefixtures("model_cache")
async def test_the_activations_are_those_of_the_text(tmp_path: Path, text: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")

    importance = await measure_importance(text, model, read_source_model(model, None, "auto"))

    squares = np.square(normed_embeddings(tiny_weights("llama"))).mean(axis=0)
    actual = importance["model.layers.0.self_attn.qkv_proj"]
    np.testing.assert_allclose(actual, squares / squares.mean(), rtol=2e-2)  # bfloat16 weights
    matrices = {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}
    assert {name.removeprefix("model.layers.1.") for name in importance} >= matrices | {"lm_head"}


@pytest.mark.usefixtures("model_cache")
async def test_calibration_changes_the_scales_of_the_search(tmp_path: Path, text: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    for name, calibration in (("search", None), ("calibrated", text)):
        await convert_weights(
            model, tmp_path / name, quantization="q3f16_1", search=True, calibration=calibration
        )

    search, calibrated = (read_tensors(tmp_path / name) for name in ("search", "calibrated"))

    assert search.keys() == calibrated.keys()
    changed = {name for name in search if not np.array_equal(search[name], calibrated[name])}
    assert "model.layers.0.mlp.down_proj.q_scale" in changed
    assert "lm_head.q_scale" in changed
    assert not {name for name in changed if "embed_tokens" in name or "norm" in name}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": False}, "calibration needs search"),
        ({"model_type": "llama"}, "does not support source and model_type"),
        ({"calibration": "missing.txt"}, r"cannot read missing\.txt: .*No such file"),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, text: Path, options: dict[str, object], message: str
) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    arguments = {"quantization": "q4f16_1", "search": True, "calibration": text, **options}

    with pytest.raises(BadRequestError, match=message) as error:
        await convert_weights(model, tmp_path / "out", **arguments)  # type: ignore[arg-type]

    assert error.value.param == "calibration"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("content", "problem"), [(b" \n", "is empty"), (b"\xff", "cannot read")])
async def test_a_text_that_cannot_be_used_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    text = write_text(tmp_path, content)
    model = write_tiny(tmp_path / "model", "llama")

    with pytest.raises(BadRequestError, match=problem):
        await convert_weights(
            model, tmp_path / "out", quantization="q4f16_1", search=True, calibration=text
        )


async def test_mixtures_of_experts_are_refused(tmp_path: Path, text: Path) -> None:
    model = write_tiny(tmp_path / "model", "mixtral")

    with pytest.raises(BadRequestError, match="calibration does not support mixtures of experts"):
        await convert_weights(
            model, tmp_path / "out", quantization="q4f16_1", search=True, calibration=text
        )
