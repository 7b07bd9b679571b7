"""The settings of image processors: files of both layouts, defaults, and typed errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import VisionConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.registry import VISION_TYPES
from aiomlc.runtime.vision.anyres_processor import best_resolution
from aiomlc.runtime.vision.crop_processor import CropProcessor
from aiomlc.runtime.vision.pixels import center_crop, pad_to_square, shortest_edge_size
from aiomlc.runtime.vision.processors import read_processor
from tests.model.tiny_vision import CONFIGS, PROCESSORS


def tower(name: str) -> VisionConfig:
    config = VISION_TYPES[CONFIGS[name]["model_type"]](Fields(CONFIGS[name], Path("config.json")))
    assert config is not None
    return config


def write(directory: Path, name: str, **changes: object) -> ConfigFiles:
    values = PROCESSORS[name] | changes
    (directory / "preprocessor_config.json").write_text(json.dumps(values))
    return ConfigFiles(directory)


def test_settings_of_transformers_5_are_those_of_images(tmp_path: Path) -> None:
    old = read_processor(write(tmp_path, "llava"), tower("llava"))
    (tmp_path / "preprocessor_config.json").unlink()
    nested = {"patch_size": 14, "image_processor": PROCESSORS["llava"]}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))

    new = read_processor(ConfigFiles(tmp_path), tower("llava"))

    assert new == old
    assert isinstance(new, CropProcessor)
    assert (new.shortest_edge, new.size, new.resample) == (56, 56, 3)


def test_a_model_without_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"has no preprocessor_config\.json, which says how"):
        read_processor(ConfigFiles(tmp_path), tower("llava"))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "llava",
            {"crop_size": {"height": 64, "width": 64}},
            "crop_size\" must be the tower's image_size, 56, got 64",
        ),
        ("llava", {"do_center_crop": False}, 'do_center_crop" must be true, got false'),
        ("llava", {"image_mean": [0.5]}, 'image_mean" must have 3 numbers, got 1'),
        ("llava", {"resample": 9}, 'resample" must be <= 5, got 9'),
        ("llava_siglip", {"size": {"height": 5, "width": 6}}, "must have equal sides, got 5 and 6"),
        (
            "llava_next",
            {"image_grid_pinpoints": [[56, 60]]},
            "must be a list of pairs of multiples of 56",
        ),
        ("idefics3", {"max_image_size": {"longest_edge": 30}}, "image_size, 28, got 30"),
        ("internvl", {"max_patches": 0}, 'max_patches" must be >= 1, got 0'),
        ("mistral3", {"size": {"longest_edge": 0}}, 'longest_edge" must be >= 1, got 0'),
    ],
)
def test_unsupported_settings_are_refused_by_field(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        read_processor(write(tmp_path, name, **changes), tower(name))

    assert caught.value.path == tmp_path / "preprocessor_config.json"


def test_of_equal_resolutions_the_smallest_is_best() -> None:
    resolutions = [(112, 112), (56, 112), (112, 56)]

    assert best_resolution(20, 40, resolutions) == (56, 112)
    assert best_resolution(400, 100, resolutions) == (112, 56)
    assert best_resolution(300, 300, resolutions) == (112, 112)


def test_a_small_image_is_in_the_middle_of_black() -> None:
    image = np.full((2, 3, 3), 9, np.uint8)

    cropped = center_crop(image, 4, 1)

    assert cropped[:, 0, 0].tolist() == [0, 9, 9, 0]
    assert pad_to_square(image, (1, 2, 3))[2, 0].tolist() == [1, 2, 3]
    assert shortest_edge_size(10, 20, 5) == (5, 10)
    assert shortest_edge_size(30, 20, 5) == (7, 5)
