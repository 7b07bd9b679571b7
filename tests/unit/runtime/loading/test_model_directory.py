"""Sampling defaults and stop tokens in the files of a model directory, and how one is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aiomlc import ModelLoadError, ModelNotFoundError
from aiomlc.runtime.loading.model_directory import ModelDirectory, find_model
from aiomlc.sampling_params import MODEL_DEFAULTS, SamplingParams


def directory(path: Path, **files: object) -> ModelDirectory:
    """Write the files as JSON into a model directory."""
    for name, content in files.items():
        (path / f"{name.replace('mlc', 'mlc-chat-config')}.json").write_text(json.dumps(content))
    return ModelDirectory(path)


def test_model_without_defaults_has_none(tmp_path: Path) -> None:
    assert directory(tmp_path, generation_config={}).sampling_defaults() == SamplingParams()


def test_every_parameter_of_generation_config_is_a_default(tmp_path: Path) -> None:
    parameters = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.05,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.05,
    }

    defaults = directory(tmp_path, generation_config=parameters).sampling_defaults()

    assert {name: getattr(defaults, name) for name in MODEL_DEFAULTS} == {
        name: parameters[name] for name in MODEL_DEFAULTS
    }


def test_mlc_config_overrides_generation_config(tmp_path: Path) -> None:
    mlc = {"temperature": 0.3, "presence_penalty": 1.0}
    hugging_face = {"temperature": 0.9, "presence_penalty": 0.5, "top_k": 5}

    defaults = directory(tmp_path, mlc=mlc, generation_config=hugging_face).sampling_defaults()

    assert defaults == SamplingParams(temperature=0.3, presence_penalty=1.0, top_k=5)


def test_do_sample_false_is_temperature_0_and_top_k_minus_1_is_unlimited(tmp_path: Path) -> None:
    parameters = {"do_sample": False, "temperature": 0.9, "top_k": -1}

    defaults = directory(tmp_path, generation_config=parameters).sampling_defaults()

    assert (defaults.temperature, defaults.top_k) == (0.0, 0)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("temperature", -0.1, "should be non-negative, got -0.1"),
        ("top_p", 1.5, r"should be in range \[0, 1\], got 1.5"),
        ("min_p", True, "must be a number, got True"),
        ("top_k", 2.5, "must be an integer, got 2.5"),
        ("top_k", -2, "should be non-negative, got -2"),
        ("presence_penalty", "1", "must be a number, got '1'"),
        ("frequency_penalty", 3, r"should be in range \[-2, 2\], got 3"),
        ("repetition_penalty", 0, "should be positive, got 0"),
        ("top_k", 2**70, "should be less than 9223372036854775808, got 1180591620717411303424"),
    ],
)
def test_error_of_an_invalid_default_names_file_and_field(
    tmp_path: Path, field: str, value: object, rule: str
) -> None:
    model = directory(tmp_path, generation_config={field: value})

    with pytest.raises(
        ModelLoadError, match=rf"generation_config\.json: {field} {rule}$"
    ) as caught:
        model.sampling_defaults()

    assert caught.value.field == field


def test_end_tokens_come_from_every_file(tmp_path: Path) -> None:
    model = directory(
        tmp_path, config={"eos_token_id": 1}, generation_config={"eos_token_id": [0, 2]}
    )

    assert list(model.eos_token_ids(3)) == [0, 2, 1]


@pytest.mark.parametrize("value", [-1, 3, 10**9, 10**1000, True, "1", 1.0, [0, 3], [[0]], {}])
def test_an_end_token_outside_of_the_vocabulary_is_refused(tmp_path: Path, value: object) -> None:
    model = directory(tmp_path, config={"eos_token_id": value})

    with pytest.raises(
        ModelLoadError, match=r"config\.json: eos_token_id must be .* in \[0, 3\)"
    ) as caught:
        list(model.eos_token_ids(3))

    assert (caught.value.path, caught.value.field) == (tmp_path / "config.json", "eos_token_id")


def test_suppressed_tokens_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    model = directory(tmp_path, generation_config={"suppress_tokens": [2, 0, 2, 3, -1]})

    assert model.suppress_tokens(3) == (0, 2)
    assert directory(tmp_path, generation_config={}).suppress_tokens(3) == ()


@pytest.mark.parametrize("value", [1, "1", [0, True], [0, "1"], [1.0], {}])
def test_suppressed_tokens_must_be_a_list_of_integers(tmp_path: Path, value: object) -> None:
    model = directory(tmp_path, generation_config={"suppress_tokens": value})

    with pytest.raises(
        ModelLoadError, match=r"generation_config\.json: suppress_tokens must be a list"
    ) as caught:
        model.suppress_tokens(3)

    assert caught.value.field == "suppress_tokens"


def test_a_fifo_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "generation_config.json")

    with pytest.raises(ModelLoadError, match="must be a regular file, got a FIFO"):
        ModelDirectory(tmp_path).sampling_defaults()


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 5000, "a\0b", "~nosuchuser/x"])
def test_a_path_that_cannot_exist_is_a_typed_error(name: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        find_model(name)

    assert caught.value.path is not None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("model.safetensors", "it is a file, but not GGUF: pass the directory that contains it"),
        ("none.gguf", "no such file or directory; pass the directory of a model, a GGUF file, HF"),
        (
            "none",
            "no such file or directory; .* HF://user/repository, or pebble for the bundled model",
        ),
        ("qwen3-0.6-q8_0.gguf", r"no such file or directory; did you mean qwen3-0.6b-q8_0.gguf\?"),
        ("clones", r"no such file or directory; did you mean clone\?"),
        ("peble", r"no such file or directory; did you mean pebble\?"),
        ("model.safetensor", "no such file or directory; pass the directory of a model"),
    ],
)
def test_a_path_that_is_not_a_directory_is_explained(
    tmp_path: Path, name: str, advice: str
) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "qwen3-0.6b-q8_0.gguf").touch()
    (tmp_path / "clone").mkdir()

    with pytest.raises(ModelNotFoundError, match=f"{name}: {advice}"):
        find_model(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3:0.6b", "names of ollama do not work here: use HF://Qwen/Qwen3-0.6B"),
        ("qwen3", "use HF://Qwen/Qwen3-8B"),
        ("gemma3:latest", "use HF://google/gemma-3-4b-it"),
        ("llama3.2:1b-instruct-q4_K_M", "use HF://meta-llama/Llama-3.2-1B-Instruct"),
        ("qwen3:480b", "names of ollama do not work here: look for it on huggingface.co"),
        ("hf.co/ada/x-GGUF:Q4_0", "did you mean HF://ada/x-GGUF, or hf://ada/x-GGUF:file.gguf?"),
    ],
)
def test_a_name_of_ollama_is_answered_with_a_repository(name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        find_model(name)

    assert str(caught.value).endswith(hint)


def test_a_repository_that_was_not_downloaded_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    with pytest.raises(
        ModelNotFoundError, match=r"no such directory, .* `aiomlc pull Qwen/Qwen3-0\.6B`"
    ):
        find_model("Qwen/Qwen3-0.6B")


def test_the_bundled_model_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model("pebble").path == find_model(None).path

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pebble").mkdir()
    assert find_model("pebble").path == tmp_path / "pebble"
