"""The image processors by model type."""

from __future__ import annotations

__all__ = ("read_processor",)

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import VisionConfig
from aiomlc.runtime.vision.anyres_processor import AnyResProcessor
from aiomlc.runtime.vision.crop_processor import CropProcessor
from aiomlc.runtime.vision.image_processor import ImageProcessor
from aiomlc.runtime.vision.processor_fields import ProcessorFields
from aiomlc.runtime.vision.tile_processor import InternVLProcessor, SplitProcessor

_LANCZOS: Final = 1
_BICUBIC: Final = 3
_HALF: Final = [0.5, 0.5, 0.5]
_PINPOINTS: Final = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
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


def _llava_next(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(
        files,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        resample=_BICUBIC,
        image_grid_pinpoints=_PINPOINTS,
    )
    return AnyResProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        size=config.image_size,
        patch_size=config.patch_size,
        resolutions=fields.resolutions("image_grid_pinpoints", config.image_size),
        has_class_token=config.has_class_token,
    )


def _idefics3(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(
        files,
        image_mean=_HALF,
        image_std=_HALF,
        resample=_LANCZOS,
        size={"longest_edge": 4 * 364},
        max_image_size={"longest_edge": 364},
    )
    size = fields.edge("max_image_size", "longest_edge")
    if size != config.image_size:
        raise fields.image.error(
            "max_image_size", f"must be the tower's image_size, {config.image_size}, got {size}"
        )

    do_resize = fields.image.boolean("do_resize", True)
    return SplitProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        size=size,
        patch_size=config.patch_size,
        merge=config.merge,
        has_class_token=False,
        longest_edge=fields.edge("size", "longest_edge") if do_resize else 0,
        splits=fields.image.boolean("do_image_splitting", True),
    )


def _internvl(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(
        files,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        resample=_BICUBIC,
        size={"height": 384, "width": 384},
    )
    size = fields.square("size")
    if size != config.image_size:
        raise fields.image.error(
            "size", f"must be the tower's image_size, {config.image_size}, got {size}"
        )

    # The processor of the whole model divides images even if that of images does not.
    return InternVLProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        size=size,
        patch_size=config.patch_size,
        merge=config.merge,
        has_class_token=config.has_class_token,
        min_tiles=fields.image.integer("min_patches", 1),
        max_tiles=fields.image.integer("max_patches", 12),
    )


_PROCESSORS: Mapping[str, Callable[[ConfigFiles, VisionConfig], ImageProcessor]] = MappingProxyType(
    {
        "idefics3": _idefics3,
        "internvl": _internvl,
        "llava": _llava,
        "llava_next": _llava_next,
        "smolvlm": _idefics3,
    }
)
