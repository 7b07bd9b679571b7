"""What a model's own files say about sampling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiomlc import ModelLoadError
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.sampling_params import SamplingDefaults


def directory(path: Path, **files: object) -> ModelDirectory:
    for name, content in files.items():
        (path / f"{name.replace('mlc', 'mlc-chat-config')}.json").write_text(json.dumps(content))
    return ModelDirectory(path)


def test_a_model_without_wishes_is_sampled_as_it_is(tmp_path: Path) -> None:
    assert directory(tmp_path, generation_config={}).sampling_defaults() == SamplingDefaults()
    assert SamplingDefaults() == SamplingDefaults(1.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0)


def test_everything_that_generation_config_says_is_the_default(tmp_path: Path) -> None:
    wishes = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.05,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.05,
    }

    defaults = directory(tmp_path, generation_config=wishes).sampling_defaults()

    assert defaults == SamplingDefaults(0.6, 0.95, 20, 0.05, 0.25, -0.5, 1.05)


def test_mlcs_file_goes_before_hugging_faces(tmp_path: Path) -> None:
    mlc = {"temperature": 0.3, "presence_penalty": 1.0}
    hugging_face = {"temperature": 0.9, "presence_penalty": 0.5, "top_k": 5}

    defaults = directory(tmp_path, mlc=mlc, generation_config=hugging_face).sampling_defaults()

    assert defaults == SamplingDefaults(temperature=0.3, presence_penalty=1.0, top_k=5)


def test_greedy_means_temperature_0_and_minus_one_means_all_tokens(tmp_path: Path) -> None:
    wishes = {"do_sample": False, "temperature": 0.9, "top_k": -1}

    defaults = directory(tmp_path, generation_config=wishes).sampling_defaults()

    assert (defaults.temperature, defaults.top_k) == (0.0, 0)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("temperature", -0.1, r"in \[0, 2\]"),
        ("top_p", 1.5, r"in \[0, 1\]"),
        ("min_p", True, r"in \[0, 1\]"),
        ("top_k", 2.5, "an integer from 0"),
        ("top_k", -2, "an integer from 0"),
        ("presence_penalty", "1", r"in \[-2, 2\]"),
        ("frequency_penalty", 3, r"in \[-2, 2\]"),
        ("repetition_penalty", 0, "above 0"),
    ],
)
def test_a_wish_that_makes_no_sense_names_file_and_field(
    tmp_path: Path, field: str, value: object, rule: str
) -> None:
    model = directory(tmp_path, generation_config={field: value})

    with pytest.raises(
        ModelLoadError, match=rf"generation_config\.json: {field} is .*, not {rule}"
    ) as caught:
        model.sampling_defaults()

    assert caught.value.field == field
