"""The towers of Qwen's models: images of any size, RoPE on two axes, and 2 x 2 patches per row."""

from __future__ import annotations

__all__ = ("parse_qwen2_5_vl", "parse_qwen2_vl", "parse_qwen3_5", "parse_qwen3_vl")

from typing import Final

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.tower import (
    ActivationStep,
    LinearStep,
    MergeStep,
    NormStep,
    ProjectorStep,
    TowerNames,
)
from aiomlc.models.config.vision import LayerFeature, VisionConfig

_EPS: Final = 1e-6
_THETA: Final = 10_000.0
_PREFIXES: Final = (("model.visual.", "visual."),)
#: Directories of transformers 4.52 to 4.57 have other names than those of the hub.
_OLD_PREFIXES: Final = (*_PREFIXES, ("model.language_model.", "model."))
_TAPS: Final = 4  # Of bilinear interpolation.


def parse_qwen2_vl(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `qwen2_vl`."""
    vision = fields.nested("vision_config").with_defaults(depth=32, embed_dim=1280, mlp_ratio=4)
    hidden = vision.integer("embed_dim")
    # `hidden_size` is that of the decoder.
    vision = vision.with_defaults(hidden_size=3584)
    return _tower(
        vision.replaced(
            hidden_size=hidden,
            intermediate_size=hidden * vision.integer("mlp_ratio"),
            out_hidden_size=vision.integer("hidden_size"),
        ),
        "qwen2_vl",
        activation=_activation(vision, "quick_gelu"),
        mlp=("mlp.fc1", "mlp.fc2"),
    )


def parse_qwen2_5_vl(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `qwen2_5_vl`, most of whose layers have windows."""
    vision = fields.nested("vision_config").with_defaults(
        depth=32,
        hidden_size=3584,
        intermediate_size=3420,
        out_hidden_size=3584,
        window_size=112,
        fullatt_block_indexes=[7, 15, 23, 31],
    )
    full = vision.integers("fullatt_block_indexes")
    return _tower(
        vision,
        "qwen2_5_vl",
        activation=_activation(vision, "silu"),
        mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        window_layers=tuple(n for n in range(vision.integer("depth")) if n not in full),
    )


def parse_qwen3_vl(fields: Fields) -> VisionConfig:
    """Read the tower of `qwen3_vl` or `qwen3_vl_moe`, some of whose layers have projectors."""
    vision = fields.nested("vision_config").with_defaults(deepstack_visual_indexes=[8, 16, 24])
    name = "deepstack_visual_indexes"
    layers = vision.integers(name)
    depth = vision.with_defaults(depth=27).integer("depth")
    if layers != sorted(set(layers)) or not set(layers) <= set(range(depth)):
        problem = f"must be in ascending order and in [0, {depth}), got {layers}"
        raise vision.error(name, problem)

    return _parse_qwen3(vision, fields.string("model_type"), layers)


def parse_qwen3_5(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `qwen3_5` or `qwen3_5_moe`."""
    return _parse_qwen3(fields.nested("vision_config"), fields.string("model_type"), [])


def _parse_qwen3(vision: Fields, model_type: str, feature_layers: list[int]) -> VisionConfig:
    vision = vision.with_defaults(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        out_hidden_size=3584,
        patch_size=16,
        num_position_embeddings=2304,
    )
    return _tower(
        vision,
        model_type,
        activation=_activation(vision, "gelu_pytorch_tanh"),
        mlp=("mlp.linear_fc1", "mlp.linear_fc2"),
        feature_layers=feature_layers,
    )


def _activation(vision: Fields, default: str) -> Activation:
    allowed: dict[str, Activation] = {
        "gelu": "gelu",
        "gelu_pytorch_tanh": "gelu_tanh",
        "quick_gelu": "quick_gelu",
        "silu": "silu",
    }
    return allowed[vision.choice("hidden_act", tuple(allowed), default)]


def _tower(
    vision: Fields,
    model_type: str,
    *,
    activation: Activation,
    mlp: tuple[str, ...],
    window_layers: tuple[int, ...] = (),
    feature_layers: list[int] | None = None,
) -> VisionConfig:
    hidden = vision.integer("hidden_size")
    heads = vision.integer("num_heads", 16)
    if hidden % (4 * heads):
        raise vision.error("num_heads", f"must divide hidden_size / 4 ({hidden / 4}), got {heads}")

    side, merge = vision.integer("patch_size", 14), vision.integer("spatial_merge_size", 2)
    frames = vision.integer("temporal_patch_size", 2)
    positions = 0
    if "num_position_embeddings" in vision:
        positions = vision.integer("num_position_embeddings")
    out, is_rms = vision.integer("out_hidden_size"), len(mlp) > 2
    features = _features(feature_layers or [], hidden, merge, out)
    return VisionConfig(
        model_type=model_type,
        image_size=side * int(positions**0.5),
        patch_size=side,
        patch_inputs=vision.integer("in_channels", 3) * frames * side * side,
        num_frames=frames,
        patch_bias=positions > 0,
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_hidden_layers=vision.integer("depth"),
        num_heads=heads,
        head_dim=hidden // heads,
        activation=activation,
        gated=is_rms,
        norm_kind="rms" if is_rms else "layer",
        norm_eps=_EPS,
        num_positions=positions,
        position_taps=_TAPS if positions else 1,
        rope_theta=_THETA,
        projector=_merger(hidden, merge, out, is_old=not positions, is_rms=is_rms),
        embedded_size=out * (1 + len(features)),
        merge=merge,
        window_layers=window_layers,
        window_size=vision.integer("window_size") if window_layers else 0,
        features=features,
        names=TowerNames(
            patch="visual.patch_embed.proj",
            positions="visual.pos_embed.weight",
            layers="visual.blocks",
            attention_norm="norm1",
            qkv=("attn.qkv",),
            output="attn.proj",
            mlp_norm="norm2",
            up=mlp[:-1],
            down=mlp[-1],
        ),
        prefixes=_PREFIXES if positions else _OLD_PREFIXES,
    )


def _merger(
    hidden: int, merge: int, out: int, *, is_old: bool, is_rms: bool
) -> tuple[ProjectorStep, ...]:
    name = "visual.merger"
    norm, first, second = (
        ("ln_q", "mlp.0", "mlp.2") if is_old else ("norm", "linear_fc1", "linear_fc2")
    )
    width = merge * merge * hidden
    return (
        NormStep(
            source=f"{name}.{norm}", norm_kind="rms" if is_rms else "layer", eps=_EPS, size=hidden
        ),
        MergeStep(count=merge * merge, size=hidden),
        LinearStep(source=f"{name}.{first}", inputs=width, outputs=width, bias=True),
        ActivationStep(activation="gelu"),
        LinearStep(source=f"{name}.{second}", inputs=width, outputs=out, bias=True),
    )


def _features(layers: list[int], hidden: int, merge: int, out: int) -> tuple[LayerFeature, ...]:
    width = merge * merge * hidden
    features = []
    for index, layer in enumerate(layers):
        name = f"visual.deepstack_merger_list.{index}"
        projector = (
            MergeStep(count=merge * merge, size=hidden),
            NormStep(source=f"{name}.norm", norm_kind="layer", eps=_EPS, size=width),
            LinearStep(source=f"{name}.linear_fc1", inputs=width, outputs=width, bias=True),
            ActivationStep(activation="gelu"),
            LinearStep(source=f"{name}.linear_fc2", inputs=width, outputs=out, bias=True),
        )
        features.append(LayerFeature(layer=layer, projector=projector))
    return tuple(features)
