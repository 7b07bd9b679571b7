"""The storage format of a quantized checkpoint's weights, from its configuration."""

from __future__ import annotations

__all__ = (
    "MLC_QUANTIZATIONS",
    "QUANTIZATION_METHODS",
    "StoredQuantization",
    "read_quantization",
)

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.fields import Fields, quote

Method = Literal["mlc", "awq", "gptq", "compressed-tensors", "fp8", "mxfp4"]

#: The quantizations of MLC LLM whose weights can be read.
MLC_QUANTIZATIONS: Final = (
    *("q0f16", "q0bf16", "q0f32"),
    "w4a8",  # The engine's own.
    *("q3f16_0", "q3f16_1"),
    *("q4f16_0", "q4f16_1", "q4f16_2", "q4bf16_0", "q4bf16_1", "q4f32_1"),
    "q4f16_autoawq",
    *("e4m3_e4m3_f16", "e4m3_e4m3_f16_max_calibrate", "e5m2_e5m2_f16"),
    *("fp8_e4m3fn_bf16_block_scale", "fp8_e4m3fn_bf16_block_scale_static_activation"),
)
_GROUP_SIZES: Final = (32, 64, 128, 256)
_PER_CHANNEL: Final = -1
_INT8_BITS: Final = 8
_COMPRESSED_FORMATS: Final = (
    *("pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "mixed-precision"),
)


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """The quantization of the matrices in a checkpoint."""

    name: str  #: MLC's name of the quantization, or the `quant_method`.
    method: Method
    bits: int = 0  #: AWQ and GPTQ only; the others follow from the tensors.
    group_size: int = 0  #: Inputs that share a scale, -1 for all of them; AWQ and GPTQ only.
    zero_point_offset: int = 0  #: Added to the stored zero points.
    has_input_order: bool = False  #: Whether groups consist of inputs that are not neighbors.
    is_transposed: bool = False  #: Whether matrices are stored by inputs; MLC LLM's only.
    #: Whether activations are rounded to 8 bits, with one scale per token; compressed-tensors only.
    has_int8_activations: bool = False
    block: tuple[int, int] | None = None  #: Outputs and inputs that share a scale; FP8 only.


def read_quantization(files: ConfigFiles) -> StoredQuantization | None:
    """Return how the weights of a model directory are quantized; None if they are floats.

    Raises:
        ModelLoadError: If the quantization, or an option of it, is not supported.
    """
    path = files.path("mlc-chat-config.json")
    if (values := files.object(path.name)) is not None:
        return _parse_mlc(Fields(values, path))

    path = files.path("config.json")
    values = files.object(path.name)
    return None if values is None else _parse_hugging_face(Fields(values, path))


def _parse_mlc(fields: Fields) -> StoredQuantization:
    name = fields.string("quantization")
    if name == "q4f16_ft":
        raise fields.error(
            "quantization",
            f"must be one of {', '.join(MLC_QUANTIZATIONS)}, got {quote(name)}: its weights are "
            "packed for one generation of GPUs; convert the original model instead",
        )

    name = fields.choice("quantization", MLC_QUANTIZATIONS)
    if name == "q4f16_autoawq":
        return StoredQuantization(name, "awq", bits=4, group_size=128)

    block = _block(fields.nested("model_config"), "weight_block_size")
    return StoredQuantization(name, "mlc", is_transposed=name.endswith("_0"), block=block)


def _parse_hugging_face(fields: Fields) -> StoredQuantization | None:
    name = "quantization_config"
    if name not in fields:
        return None

    config = fields.nested(name)
    method = config.string("quant_method", "")
    if method not in _PARSERS:
        raise config.error(
            "quant_method",
            f"must be one of {', '.join(map(quote, _PARSERS))}, got {quote(method)}: "
            f"{_REASONS.get(method, _DEFAULT_REASON)}",
        )

    return _PARSERS[method](config)


def _parse_awq(config: Fields) -> StoredQuantization:
    config.choice("version", ("gemm", "GEMM"), "gemm")
    if not config.boolean("zero_point", True):
        raise config.error("zero_point", "must be true, got false")

    bits = _bits(config, (4,))
    return StoredQuantization("awq", "awq", bits=bits, group_size=_group_size(config))


def _parse_gptq(config: Fields) -> StoredQuantization:
    version = config.choice("checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    config.require_false("is_marlin_format")
    _refuse_overrides(config)
    return StoredQuantization(
        "gptq",
        "gptq",
        bits=_bits(config, (2, 3, 4, 8)),
        group_size=_group_size(config),
        zero_point_offset=1 if version == "gptq" else 0,
        has_input_order=config.boolean("desc_act", False),
    )


def _refuse_overrides(config: Fields) -> None:
    """Raise if modules have other settings; a pattern that begins with `-:` only excludes some."""
    overrides = config.nested("dynamic")
    for pattern in overrides.names():
        if not pattern.startswith("-:"):
            problem = f"must only exclude modules (-:PATTERN), got {quote(pattern)}"
            raise config.error("dynamic", problem)


def _parse_compressed_tensors(config: Fields) -> StoredQuantization:
    config.choice("format", _COMPRESSED_FORMATS)
    config.choice("quantization_status", ("compressed",), "compressed")
    config.nested("sparsity_config").choice("format", ("dense",), "dense")
    if config.nested("transform_config").names():
        raise config.error("transform_config", "must be absent: transforms are not supported")

    groups = config.nested("config_groups")
    weights = [_parse_group(groups.nested(name)) for name in groups.names()]
    if not weights:
        raise config.error("config_groups", "must have at least one group")

    blocks = {_block(group, "block_structure") for group in weights} - {None}
    if len(blocks) > 1:
        raise config.error("config_groups", "must have the same block_structure in all groups")

    return StoredQuantization(
        "compressed-tensors",
        "compressed-tensors",
        has_input_order=any(group.string("actorder", "") == "group" for group in weights),
        has_int8_activations=all(
            _has_int8_activations(groups.nested(name)) for name in groups.names()
        ),
        block=next(iter(blocks), None),
    )


def _parse_group(group: Fields) -> Fields:
    """Check a group of modules; return the settings of their weights."""
    group.choice("format", _COMPRESSED_FORMATS, _COMPRESSED_FORMATS[0])
    weights = group.nested("weights")
    kind = weights.choice("type", ("int", "float"), "int")
    _bits(weights, (4, 8) if kind == "int" else (8,), "num_bits")
    weights.choice("strategy", ("tensor", "channel", "group" if kind == "int" else "block"))
    if kind == "int" and weights.integer("group_size", _PER_CHANNEL) != _PER_CHANNEL:
        _group_size(weights)
    weights.choice("actorder", ("group", "weight", "static"), "weight")
    return weights


def _has_int8_activations(group: Fields) -> bool:
    if "input_activations" not in group:
        return False

    activations = group.nested("input_activations")
    is_integer = activations.string("type", "int") == "int"
    return is_integer and activations.integer("num_bits") == _INT8_BITS


def _parse_fp8(config: Fields) -> StoredQuantization:
    config.choice("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    return StoredQuantization("fp8", "fp8", block=_block(config, "weight_block_size"))


def _parse_mxfp4(_: Fields) -> StoredQuantization:
    return StoredQuantization("mxfp4", "mxfp4")


def _block(config: Fields, name: str) -> tuple[int, int] | None:
    if name not in config:
        return None

    sizes = config.integers(name)
    if len(sizes) != 2 or min(sizes) < 1:
        raise config.error(name, f"must be two positive integers, got {quote(sizes)}")

    return sizes[0], sizes[1]


def _bits(config: Fields, allowed: tuple[int, ...], name: str = "bits") -> int:
    bits = config.integer(name)
    if bits not in allowed:
        raise config.error(name, f"must be {_one_of(allowed)}, got {bits}")

    return bits


def _group_size(config: Fields) -> int:
    size = config.integer("group_size")
    if size not in (_PER_CHANNEL, *_GROUP_SIZES):
        raise config.error(
            "group_size", f"must be {_one_of((_PER_CHANNEL, *_GROUP_SIZES))}, got {size}"
        )

    return size


def _one_of(allowed: tuple[int, ...]) -> str:
    return str(allowed[0]) if len(allowed) == 1 else f"one of {', '.join(map(str, allowed))}"


_PARSERS: Final[Mapping[str, Callable[[Fields], StoredQuantization]]] = MappingProxyType(
    {
        "awq": _parse_awq,
        "gptq": _parse_gptq,
        "compressed-tensors": _parse_compressed_tensors,
        "fp8": _parse_fp8,
        "fbgemm_fp8": _parse_fp8,
        "mxfp4": _parse_mxfp4,
    }
)
QUANTIZATION_METHODS: Final = tuple(_PARSERS)

_DEFAULT_REASON: Final = (
    "its weights cannot be read; pass the model that they were made from, which is quantized when "
    "it is opened"
)
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bitsandbytes": "the weights of bitsandbytes cannot be read; pass the model that they were "
        "made from, or save it with model.dequantize().save_pretrained() of transformers",
    }
)
