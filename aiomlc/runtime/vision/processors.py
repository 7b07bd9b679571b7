"""The image processors by model type."""

from __future__ import annotations

__all__ = ("read_pooled_processor", "read_processor", "with_known_token")

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import VisionConfig
from aiomlc.runtime.vision.anyres_processor import AnyResProcessor
from aiomlc.runtime.vision.budget_processor import BudgetProcessor
from aiomlc.runtime.vision.crop_processor import CropProcessor, PooledProcessor
from aiomlc.runtime.vision.grid_processor import GridProcessor
from aiomlc.runtime.vision.image_processor import ImageProcessor
from aiomlc.runtime.vision.pan_and_scan_processor import PanAndScan, PanAndScanProcessor
from aiomlc.runtime.vision.pixels import PixelScale
from aiomlc.runtime.vision.pixtral_processor import PixtralProcessor
from aiomlc.runtime.vision.processor_fields import ProcessorFields
from aiomlc.runtime.vision.tile_processor import InternVLProcessor, SplitProcessor

_LANCZOS: Final = 1
_BILINEAR: Final = 2
_BICUBIC: Final = 3
_HALF: Final = [0.5, 0.5, 0.5]
_PINPOINTS: Final = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
_QWEN: Final = ("qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe")
_CLIP_MEAN: Final = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD: Final = [0.26862954, 0.26130258, 0.27577711]
# Special tokens that texts do not have, for vocabularies that are those of models of text.
_STAND_INS: Final = ("<unk>", "<|reserved_special_token_0|>")


def read_processor(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    """Return the image processor of a model.

    Raises:
        ModelLoadError: If a file is missing or a field is invalid.
    """
    return _PROCESSORS[config.model_type](files, config)


def read_pooled_processor(files: ConfigFiles, config: VisionConfig) -> PooledProcessor:
    """Return the image processor of a model that embeds each image as one row.

    Raises:
        ModelLoadError: If a file is missing or a field is invalid.
    """
    return PooledProcessor(_POOLED_PROCESSORS[config.model_type](files, config))


def with_known_token(
    processor: ImageProcessor, token_id: Callable[[str], int | None]
) -> ImageProcessor:
    """Return a processor whose image token is in the vocabulary, if one of its kind can be.

    GGUF files of LLaVA have the vocabulary of their decoder of text, without `<image>`. The rows of
    an image replace the embeddings of its tokens, so that any token may stand for them.

    Args:
        processor: The processor of the model's family.
        token_id: Returns the id of a token; None if the vocabulary has no such token.
    """
    if not isinstance(processor, CropProcessor | AnyResProcessor):
        return processor  # The prompts of the others have tokens beside that of images.

    tokens = (processor.image_token, *_STAND_INS)
    known = next((token for token in tokens if token_id(token) is not None), tokens[0])
    return replace(processor, image_token=known)


def _pixtral(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(
        files,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        resample=_BICUBIC,
        size={"longest_edge": 1024},
    )
    outer = fields.outer
    return PixtralProcessor(
        image_token=outer.string("image_token", "[IMG]"),
        placeholder=outer.string("image_token", "[IMG]"),
        break_token=outer.string("image_break_token", "[IMG_BREAK]"),
        end_token=outer.string("image_end_token", "[IMG_END]"),
        scale=fields.scale(),
        resample=fields.resample(),
        patch_size=config.patch_size,
        merge=config.merge,
        longest_edge=fields.edge("size", "longest_edge") or fields.square("size"),
    )


def _llava(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    return _pixtral(files, config) if config.rope_theta else _clip(files, config)


def _clip(files: ConfigFiles, config: VisionConfig) -> CropProcessor:
    side = 224 if files.object("mlc-chat-config.json") is None else config.image_size
    fields = ProcessorFields(
        files,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        resample=_BICUBIC,
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
    )
    return _crop(fields, config)


def _siglip(files: ConfigFiles, config: VisionConfig) -> CropProcessor:
    size = {"height": 224, "width": 224}
    fields = ProcessorFields(files, image_mean=_HALF, image_std=_HALF, resample=_BICUBIC, size=size)
    return _crop(fields, config)


def _crop(fields: ProcessorFields, config: VisionConfig) -> CropProcessor:
    shortest_edge = fields.edge("size", "shortest_edge")
    name = "crop_size" if shortest_edge else "size"
    fields.require(name, fields.square(name), config.image_size)
    fields.require_true("do_resize", *["do_center_crop"] * bool(shortest_edge))
    return CropProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        shortest_edge=shortest_edge,
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
        crop_size={"height": 224, "width": 224},
    )
    fields.require("crop_size", fields.square("crop_size"), config.image_size)
    fields.require_true("do_resize", "do_center_crop")
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
    fields.require("max_image_size", size, config.image_size)
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
    fields.require("size", size, config.image_size)
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


def _gemma3(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(files, image_mean=_HALF, image_std=_HALF, resample=_BILINEAR, size=224)
    size = fields.square("size")
    fields.require("size", size, config.image_size)
    scan: PanAndScan | None = None
    if fields.image.boolean("do_pan_and_scan", False):
        image = fields.image.with_defaults(
            pan_and_scan_min_crop_size=256,
            pan_and_scan_max_num_crops=4,
            pan_and_scan_min_ratio_to_activate=1.2,
        )
        scan = PanAndScan(
            min_crop_size=image.integer("pan_and_scan_min_crop_size"),
            max_crops=image.integer("pan_and_scan_max_num_crops"),
            min_ratio=image.number("pan_and_scan_min_ratio_to_activate"),
        )
    return PanAndScanProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        size=size,
        patch_size=config.patch_size,
        block=config.merge,
        pan_and_scan=scan,
    )


def _gemma4(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(files, resample=_BICUBIC, max_soft_tokens=280, do_normalize=False)
    scale = fields.scale()
    if scale.mean:
        raise fields.image.error("do_normalize", "must be false: the tower scales pixels itself")

    tokens = files.object("tokenizer_config.json") or {}
    names = {"image_token": "image_token", "boi_token": "start_token", "eoi_token": "end_token"}
    own = {ours: tokens[name] for name, ours in names.items() if isinstance(tokens.get(name), str)}
    if "image_token" in own:
        own["placeholder"] = own["image_token"]
    return BudgetProcessor(
        **own,
        scale=PixelScale(scale.factor, (0.5,) * 3, (0.5,) * 3),
        resample=fields.resample(),
        patch_size=config.patch_size,
        block=config.merge,
        max_tokens=fields.image.integer("max_soft_tokens"),
        table_size=config.num_positions // 2,
    )


def _qwen(files: ConfigFiles, config: VisionConfig) -> ImageProcessor:
    fields = ProcessorFields(files, image_mean=_CLIP_MEAN, image_std=_CLIP_STD, resample=_BICUBIC)
    size = fields.image.nested("size")
    pixels = fields.image.with_defaults(
        min_pixels=size.value("shortest_edge") or 56 * 56,
        max_pixels=size.value("longest_edge") or 28 * 28 * 1280,
    )
    return GridProcessor(
        scale=fields.scale(),
        resample=fields.resample(),
        patch_size=config.patch_size,
        merge=config.merge,
        num_frames=1 if config.separates_frames else config.num_frames,
        min_pixels=pixels.integer("min_pixels"),
        max_pixels=pixels.integer("max_pixels"),
        window=config.window_size // config.merge // config.patch_size,
        table_side=math.isqrt(config.num_positions),
    )


_PROCESSORS: Mapping[str, Callable[[ConfigFiles, VisionConfig], ImageProcessor]] = MappingProxyType(
    {
        "gemma3": _gemma3,
        "gemma4": _gemma4,
        "idefics3": _idefics3,
        "internvl": _internvl,
        "llava": _llava,
        "llava_next": _llava_next,
        "mistral3": _pixtral,
        "smolvlm": _idefics3,
        **dict.fromkeys(_QWEN, _qwen),
    }
)
_POOLED_PROCESSORS: Mapping[str, Callable[[ConfigFiles, VisionConfig], CropProcessor]] = (
    MappingProxyType({"clip": _clip, "siglip": _siglip})
)
