"""The image processors by model type."""

from __future__ import annotations

__all__ = ("read_processor",)

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import VisionConfig
from aiomlc.runtime.vision.crop_processor import CropProcessor
from aiomlc.runtime.vision.image_processor import ImageProcessor
from aiomlc.runtime.vision.processor_fields import ProcessorFields

_BICUBIC: Final = 3
_CLIP_MEAN: Final = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD: Final = [0.26862954, 0.26130258, 0.27577711]


def read_processor(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    """Return the image processor of a model.

    Raises:
        ModelLoadError: If a file is missing or a field is invalid.
    """
    return _PROCESSORS[config.model_type](files, config)


def _llava(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(
        files,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        resample=_BICUBIC,
        size={"shortest_edge": 224},
    )
    return CropProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        shortest_edge=fields.edge("size", "shortest_edge"),
        size=config.image_size,
        patch_size=config.patch_size,
        has_class_token=config.has_class_token,
        drops_class_token=config.drops_class_token,
        pads_to_square=fields.image.boolean("do_pad", False),
    )


_PROCESSORS: Mapping[str, Callable[[ConfigFiles, VisionConfig], ImageProcessor]] = MappingProxyType(
    {
        "llava": _llava,
    }
)
