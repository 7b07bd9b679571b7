"""The settings of image processors in the files of a model, which all families share."""

from __future__ import annotations

__all__ = ("ProcessorFields",)

from collections.abc import Mapping
from typing import Any, Final, TypeGuard, final

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.fields import Fields
from aiomlc.runtime.vision.pixels import PixelScale
from aiomlc.validation.json_values import short_repr

_OLD: Final = "preprocessor_config.json"
_NEW: Final = "processor_config.json"  # Of transformers 5, which nests the settings of images.


@final
class ProcessorFields:
    """The settings of a model's image processor, and those around it.

    Args:
        files: The files of the model.
        defaults: What transformers assumes of absent settings.

    Raises:
        ModelLoadError: If the model has no such file, or a field is invalid.
    """

    def __init__(self, files: ConfigFiles, **defaults: object) -> None:
        outer = files.object(_NEW) or {}
        nested = outer.get("image_processor")
        values: Mapping[str, Any] | None = nested if isinstance(nested, dict) else None
        name = _OLD if values is None else _NEW
        values = files.object(_OLD) if values is None else values
        if values is None and files.object("mlc-chat-config.json") is not None:
            values = {}  # MLC LLM reads images in one way.
        if values is None:
            raise ModelLoadError(
                f"{files.model} has no {_OLD}, which says how its vision tower reads images: "
                "download it with the model",
                path=files.model / _OLD,
            )

        prefix = "image_processor." if name == _NEW else ""
        self.outer: Fields = Fields(outer, files.path(_NEW))
        self.image: Fields = Fields(values, files.path(name), prefix).with_defaults(**defaults)

    def scale(self) -> PixelScale:
        """Return how bytes become numbers."""
        fields = self.image
        factor = 1.0
        if fields.boolean("do_rescale", True):
            factor = fields.number("rescale_factor", 1 / 255)
        if not fields.boolean("do_normalize", True):
            return PixelScale(factor)

        mean, std = (tuple(fields.numbers(name)) for name in ("image_mean", "image_std"))
        for name, values in (("image_mean", mean), ("image_std", std)):
            if len(values) != 3:
                raise fields.error(name, f"must have 3 numbers, got {len(values)}")

        return PixelScale(factor, mean, std)

    def resample(self) -> int:
        """Return Pillow's number of the filter for resizing."""
        return self.image.integer("resample")

    def square(self, name: str) -> int:
        """Return the side of a square: a number, or the equal `height` and `width` of an object."""
        value = self.image.value(name)
        if not isinstance(value, dict):
            return self.image.replaced(height=value).integer("height")

        size = self.image.nested(name)
        height, width = (size.integer(side) for side in ("height", "width"))
        if height != width:
            raise self.image.error(name, f"must have equal sides, got {height} and {width}")

        return height

    def require(self, name: str, value: int, expected: int) -> None:
        """Require that a size is that of the tower.

        Raises:
            ModelLoadError: If it is not.
        """
        if value != expected:
            problem = f"must be the tower's image_size, {expected}, got {value}"
            raise self.image.error(name, problem)

    def require_true(self, *names: str) -> None:
        """Require that steps of the processor are not left out.

        Raises:
            ModelLoadError: If one is.
        """
        for name in names:
            if not self.image.boolean(name, True):
                raise self.image.error(name, "must be true, got false: other sizes do not fit")

    def resolutions(self, name: str, size: int) -> tuple[tuple[int, int], ...]:
        """Return a list of heights and widths, which must be multiples of `size`."""
        value = self.image.value(name)
        pairs = [tuple(pair) for pair in value] if _are_pairs(value) else []
        if not pairs or any(side <= 0 or side % size for pair in pairs for side in pair):
            problem = f"must be a list of pairs of multiples of {size}, got {short_repr(value)}"
            raise self.image.error(name, problem)

        return tuple((height, width) for height, width in pairs)

    def edge(self, name: str, member: str) -> int:
        """Return a member of an object of sizes, or 0 if it has none."""
        value = self.image.value(name)
        if not isinstance(value, dict):
            return 0

        size = self.image.nested(name)
        return size.integer(member) if member in size else 0


def _are_pairs(value: object) -> TypeGuard[list[list[int]]]:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(side) is int for side in pair)
        for pair in value
    )
