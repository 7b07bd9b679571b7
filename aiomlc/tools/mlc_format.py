"""The quantizations that the converter writes: MLC LLM's, under its names, and the engine's own."""

from __future__ import annotations

__all__ = (
    "MLC_FORMATS",
    "FP8Dtype",
    "MLCFormat",
    "ModelDtype",
    "StoredDtype",
    "format_named",
    "require_model_type",
)

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from aiomlc.errors import BadRequestError

ModelDtype = Literal["float16", "bfloat16", "float32"]
FP8Dtype = Literal["float8_e4m3fn", "float8_e5m2"]
StoredDtype = Literal[ModelDtype, FP8Dtype, "uint32", "uint8"]

_GROUP_SIZES: Final = MappingProxyType({3: 40, 4: 32})  # By bits.
_NOT_IN_MLC: Final = "MLC LLM does not have it; open the checkpoint itself with this quantization"
_REFUSED: Final = MappingProxyType(
    {
        "w8a8": _NOT_IN_MLC,
        "q4f16_ft": "its packing is that of one generation of GPUs",
        "fp8_e4m3fn_bf16_block_scale_static_activation": "MLC LLM has it only for "
        "ministral3, which is not supported",
    }
)


@dataclass(frozen=True, slots=True)
class MLCFormat:
    """A quantization of MLC directories: names, dtypes and groups of the stored tensors."""

    name: str
    dtype: ModelDtype  #: Of scales, and of all that is not quantized.
    bits: int = 0  #: Of a weight in MLC LLM's groups; 0 if no matrix has them.
    #: Whether matrices have progressive scales, and all else keeps float32: `w4a8`, which MLC LLM
    #: does not have.
    is_progressive: bool = False
    is_transposed: bool = False  #: Whether linear layers are `[inputs, outputs]`.
    keeps_vocabulary: bool = False  #: Whether embedding and output head are not quantized.
    fp8: FP8Dtype | None = None  #: Of quantized weights that have at most one scale per matrix.
    has_scale: bool = False  #: Whether these matrices have one.
    has_input_scale: bool = False  #: Whether they also have one for their inputs.
    #: The `quant_method` of the checkpoint whose quantized matrices are kept as they are.
    source_method: Literal["awq", "fp8"] | None = None
    model_types: tuple[str, ...] = ()  #: Those that MLC LLM supports, if not all.

    @property
    def group_size(self) -> int:
        """Consecutive inputs that share a scale."""
        return _GROUP_SIZES[self.bits]

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an element of `dtype` in memory."""
        return 4 if self.dtype == "float32" else 2

    def groups(self, columns: int) -> int:
        """Return the groups of a row."""
        return -(-columns // self.group_size)

    def words(self, columns: int) -> int:
        """Return the uint32 words of a row."""
        return self.groups(columns) * (self.group_size // (32 // self.bits))


def _fp8_format(
    name: str, dtype: FP8Dtype, *, has_scale: bool = False, has_input_scale: bool = False
) -> MLCFormat:
    return MLCFormat(
        name,
        "float16",
        keeps_vocabulary=True,
        fp8=dtype,
        has_scale=has_scale,
        has_input_scale=has_input_scale,
        model_types=("llama", "mixtral", "olmo2"),
    )


MLC_FORMATS: Mapping[str, MLCFormat] = MappingProxyType(
    {
        mlc_format.name: mlc_format
        for mlc_format in (
            MLCFormat("q0f16", "float16"),
            MLCFormat("q0bf16", "bfloat16"),
            MLCFormat("q0f32", "float32"),
            MLCFormat("w4a8", "float32", is_progressive=True),
            MLCFormat("q3f16_0", "float16", 3, is_transposed=True),
            MLCFormat("q3f16_1", "float16", 3),
            MLCFormat("q4f16_0", "float16", 4, is_transposed=True),
            MLCFormat("q4f16_1", "float16", 4),
            MLCFormat("q4f16_2", "float16", 4, keeps_vocabulary=True),
            MLCFormat("q4f32_1", "float32", 4),
            MLCFormat("q4bf16_0", "bfloat16", 4, is_transposed=True),
            MLCFormat("q4bf16_1", "bfloat16", 4),
            MLCFormat("q4f16_autoawq", "float16", source_method="awq", model_types=("llama",)),
            _fp8_format("e5m2_e5m2_f16", "float8_e5m2"),
            _fp8_format("e4m3_e4m3_f16", "float8_e4m3fn", has_scale=True, has_input_scale=True),
            _fp8_format("e4m3_e4m3_f16_max_calibrate", "float8_e4m3fn", has_scale=True),
            MLCFormat(
                "fp8_e4m3fn_bf16_block_scale",
                "bfloat16",
                source_method="fp8",
                model_types=("qwen3", "qwen3_moe"),
            ),
        )
    }
)


def format_named(name: str) -> MLCFormat:
    """Return the format of a quantization.

    Raises:
        BadRequestError: If it is unknown or cannot be written.
    """
    if name in MLC_FORMATS:
        return MLC_FORMATS[name]

    reason = f": {_REFUSED[name]}" if name in _REFUSED else ""
    raise BadRequestError(
        f"quantization must be one of {', '.join(MLC_FORMATS)}, got {name!r}{reason}",
        param="quantization",
    )


def require_model_type(mlc_format: MLCFormat, model_type: str) -> None:
    """Require that MLC LLM has the format for an architecture.

    Raises:
        BadRequestError: If it does not.
    """
    if mlc_format.model_types and model_type not in mlc_format.model_types:
        raise BadRequestError(
            f"quantization {mlc_format.name} supports the model types "
            f"{', '.join(mlc_format.model_types)}, as MLC LLM does, got {model_type!r}; choose "
            "another quantization, or open the checkpoint as it is",
            param="quantization",
        )
