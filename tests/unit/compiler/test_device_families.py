"""The page about devices lists every family, and a tiny model tests each that it says runs."""

from __future__ import annotations

import re
from pathlib import Path

from aiomlc.models.registry import AUDIO_TYPES, MODEL_TYPES, VISION_TYPES
from tests.model.tiny_models import TINY_CONFIGS

PAGE = Path(__file__).parents[3] / "docs" / "design" / "devices.md"


def listed() -> dict[str, set[str]]:
    """Return the model types of each list of families, by its name."""
    section = PAGE.read_text("utf-8").split("## Families\n")[1].split("\n## ")[0]
    rows = re.findall(r"^- \*\*([^*]+)\*\*: ((?:`[^`]+`,?\s+)+)", section, re.MULTILINE)
    return {name: set(re.findall(r"`([^`]+)`", types)) for name, types in rows}


def test_every_family_is_listed_once() -> None:
    rows = list(listed().values())

    assert set().union(*rows) == set(MODEL_TYPES)
    assert sum(map(len, rows)) == len(MODEL_TYPES)


def test_a_tiny_model_tests_each_family_that_runs() -> None:
    # `tests/model/opencl` runs all of these models.
    assert listed()["text"] == {str(config["model_type"]) for config in TINY_CONFIGS.values()}


def test_families_that_read_images_are_listed_as_such() -> None:
    families = listed()
    assert families["text and images"] == set(VISION_TYPES) - families["refused: encoders"]


def test_families_that_read_audio_are_listed_as_such() -> None:
    assert listed()["text and audio, on the processor only so far"] == set(AUDIO_TYPES)
