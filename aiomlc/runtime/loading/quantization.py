"""The formats in which a model is opened: those of its weight files, or the requested one."""

from __future__ import annotations

__all__ = ("find_quantization",)

from aiomlc.compiler.quantization import (
    QUANTIZATIONS,
    Quantization,
    quantization_named,
    quantization_of,
)
from aiomlc.errors import BadRequestError
from aiomlc.gguf.shards import is_gguf
from aiomlc.models import (
    EncoderConfig,
    ModelDescription,
    decoder_parameters,
    encoder_parameters,
)
from aiomlc.models.config.quantization import read_quantization
from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats.directory import read_source
from aiomlc.weights.formats.source import Source
from aiomlc.weights.storage.layouts import SourceLayouts, source_layouts

_DEFAULT = "q4f16_1"
_ENCODER_DEFAULT = "q0f32"  # Encoders are small, and embeddings are compared numerically.
# What a GGUF file with one dense format is.
_UNIFORM = {"f32": "q0f32", "f16": "q0f16", "bf16": "q0bf16"}


def find_quantization(
    directory: ModelDirectory, description: ModelDescription, requested: str | None
) -> Quantization:
    """Return the formats of all matrices.

    Weights that are already quantized keep their numbers. Others have the requested quantization,
    or else the default one.

    Raises:
        BadRequestError: If the weight files have another quantization than the requested one.
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype, or the quantization
            is not supported.
    """
    with load_errors(directory.path):
        name = _stored_name(directory)
        if name is None:
            is_encoder = isinstance(description.config, EncoderConfig)
            return quantization_named(requested or (_ENCODER_DEFAULT if is_encoder else _DEFAULT))

        if name in QUANTIZATIONS:
            _require_same(directory, name, requested)
            return quantization_named(name)

        source = read_source(directory.path)
        layouts = _layouts(description, source)
    formats = {item for layout in layouts.formats.values() for item, _ in layout}
    is_dense = not any(map(_has_integers, formats))
    if requested is not None and is_dense and not source.is_mlc:
        return quantization_named(requested)

    _require_same(directory, name, requested)
    if is_gguf(directory.path) and len(formats) == 1 and is_dense:
        return quantization_named(_UNIFORM[formats.pop()])

    return quantization_of(name, layouts.formats, layouts.ordered)


def _stored_name(directory: ModelDirectory) -> str | None:
    """Return the quantization of the weight files; None if they are floats to be quantized.

    A directory names it in its configuration, so that a library is compiled without weights.
    """
    if is_gguf(directory.path):
        return "gguf"

    stored = read_quantization(directory.path)
    return None if stored is None else stored.name


def _layouts(description: ModelDescription, source: Source) -> SourceLayouts:
    config = description.config
    if isinstance(config, EncoderConfig):
        return source_layouts(source, encoder_parameters(config), None)

    return source_layouts(source, decoder_parameters(config), None)


def _has_integers(format_name: str) -> bool:
    return MatrixFormat.parse(format_name).has_integer_activations


def _require_same(directory: ModelDirectory, stored: str, requested: str | None) -> None:
    if requested not in (None, stored):
        raise BadRequestError(
            f"{directory.path} is quantized as {stored} and cannot be opened as {requested}",
            param="quantization",
        )
