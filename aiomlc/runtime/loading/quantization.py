"""The formats in which a model is opened: those of its weight files, or the requested one."""

from __future__ import annotations

__all__ = ("RequestedQuantization", "find_quantization")

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiomlc.compiler.quantization import (
    QUANTIZATIONS,
    Quantization,
    quantization_named,
    quantization_of,
)
from aiomlc.errors import BadRequestError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import Parameter
from aiomlc.models.config.quantization import read_quantization
from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats.source import Source
from aiomlc.weights.storage.layouts import source_layouts

_GROUPED = ("q4f16_1",)
# What a GGUF file with one dense format is.
_UNIFORM = {"f32": "q0f32", "f16": "q0f16", "bf16": "q0bf16"}


@dataclass(frozen=True, slots=True)
class RequestedQuantization:
    """The quantization of a request; it yields to that of the files if no setting insists."""

    name: str | None = None  #: None for the one of the files, or the default.
    setting: str | None = "quantization"  #: The name of the setting.

    def require(self, files: ConfigFiles, stored: str) -> None:
        """Require that weight files that are quantized have this one.

        Raises:
            BadRequestError: If they have another one.
        """
        if self.setting is not None and self.name not in (None, stored):
            raise BadRequestError(
                f"{files.model} is quantized as {stored} and cannot be opened as {self.name}; "
                f"leave {self.setting} out",
                param=self.setting,
            )


def find_quantization(
    files: ConfigFiles,
    parameters: Sequence[Parameter],
    source: Callable[[], Source],
    *,
    requested: RequestedQuantization,
    default: str,
    is_mixed: bool = False,
) -> Quantization:
    """Return the formats of all matrices.

    Weights that are already quantized keep their numbers. Others have the requested quantization,
    or else the default one.

    Args:
        source: Returns its tensors. They are not read if the configuration says enough, so that a
            library is compiled without weights.
        default: The quantization of weights that are floats.
        is_mixed: Whether some matrices may be floats in a quantization that has them in groups.

    Raises:
        BadRequestError: If the weight files have another quantization than the requested one.
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype, or the quantization
            is not supported.
    """
    with load_errors(files.model):
        name = _stored_name(files)
        if name is None:
            return quantization_named(requested.name or default)

        if name in QUANTIZATIONS and not (is_mixed and name in _GROUPED):
            requested.require(files, name)
            return quantization_named(name)

        tensors = source()
        layouts = source_layouts(tensors, parameters, None)
    formats = {item for layout in layouts.formats.values() for item, _ in layout}
    is_dense = not any(map(_has_integers, formats))
    if requested.name is not None and is_dense and not tensors.is_mlc:
        return quantization_named(requested.name)

    requested.require(files, name)
    if files.is_gguf and len(formats) == 1 and is_dense:
        return quantization_named(_UNIFORM[formats.pop()])

    return quantization_of(name, layouts.formats, layouts.ordered)


def _stored_name(files: ConfigFiles) -> str | None:
    """Return the quantization of the weight files; None if they are floats to be quantized."""
    if files.is_gguf:
        return "gguf"

    stored = read_quantization(files)
    return None if stored is None else stored.name


def _has_integers(format_name: str) -> bool:
    return MatrixFormat.parse(format_name).has_integer_activations
