"""The facts of a model: all that its files say, before anything is allocated or compiled."""

from __future__ import annotations

__all__ = ("ModelFacts",)

from collections.abc import Sequence
from functools import cached_property
from typing import Final, final

from aiomlc.compiler.parameters import pack_parameters
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import (
    AnyConfig,
    ModelDescription,
    Parameter,
    SpeechConfig,
    TowerConfig,
    describe_model,
    model_parameters,
)
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.loading.quantization import RequestedQuantization, find_quantization
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats.directory import read_source, read_tower_source
from aiomlc.weights.formats.source import Source
from aiomlc.weights.plan import make_plan

# By the kind of model. The others than decoders are small, and embeddings are compared numerically.
_DEFAULTS: Final = {
    "audio": "q0f32",
    "decoder": "q4f16_1",
    "encoder": "q0f32",
    "speech": "q0f32",
    "vision": "q0f32",
}
# The quantizations of a decoder that its tower has as well; with another one, it has the default.
_TOWER_FORMATS: Final = ("q0bf16", "q8_0")


@final
class ModelFacts:
    """The facts in the files of one model; each is derived once, when it is first needed.

    A model is opened in stages: facts, memory plan, library, weights, native model, assembly. Each
    stage gets the facts of the model, and a draft model has facts of its own.

    Args:
        requested: The requested quantization; None for the one of its files, or the default.
        tower: The description of a model whose tower these facts are of.
        vision_quantization: The requested quantization of its tower; None for `requested`, if
            towers have that one, too.

    Raises:
        ModelLoadError: By every property, if a file, tensor or field is missing or invalid.
        BadRequestError: By `quantization` and `packed`, if the weights have another one than the
            requested one.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        requested: str | None = None,
        tower: ModelDescription | None = None,
        vision_quantization: str | None = None,
    ) -> None:
        self.directory = directory
        self._requested = requested
        self._tower = tower
        self._vision_quantization = vision_quantization

    @cached_property
    def description(self) -> ModelDescription:
        """The configuration, and the file that it is from."""
        return self._tower or describe_model(self.directory.files)

    @cached_property
    def tower(self) -> ModelFacts | None:
        """The facts of the tower that reads for a decoder; None if it has none.

        A directory may have a decoder without the tower that its config describes.
        """
        description = self.description
        if description.tower is None or self._tower is not None:
            return None

        vision = self._vision_quantization
        same = self._requested if self._requested in _TOWER_FORMATS else None
        tower = ModelFacts(
            self.directory, vision or same, tower=description, vision_quantization=vision
        )
        names = {name for parameter in tower.parameters for name in parameter.sources}
        return None if names.isdisjoint(tower.source.tensors) else tower

    @property
    def config(self) -> AnyConfig:
        """The configuration of the model, or of the tower."""
        if self._tower is not None and self._tower.tower is not None:
            return self._tower.tower

        return self.description.config

    @property
    def is_encoder(self) -> bool:
        """Whether the model returns embeddings and no text."""
        return self.config.kind == "encoder"

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters of the architecture."""
        return model_parameters(self.config)

    @cached_property
    def source(self) -> Source:
        """The tensors in the weight files. Their data is not read."""
        read = read_source if self._tower is None else read_tower_source
        source = read(self.directory.files)
        if (tower := self.description.tower) is not None:
            source = source.renamed(tower.renamed)
        if isinstance(self.config, TowerConfig | SpeechConfig):
            source = source.with_flat_columns(self.parameters)
        return source

    @property
    def _setting(self) -> str | None:
        """The setting that requests a quantization; None if one of a decoder is that of its tower,
        too, unless the tower's files have another one."""
        if self._tower is None:
            return "quantization"

        return "vision_quantization" if self._vision_quantization else None

    @cached_property
    def quantization(self) -> Quantization:
        """The formats of all matrices."""
        return find_quantization(
            self.directory.files,
            self.parameters,
            lambda: self.source,
            requested=RequestedQuantization(self._requested, self._setting),
            default=_DEFAULTS[self.config.kind],
            is_mixed=self._tower is not None,
        )

    @cached_property
    def packed(self) -> Sequence[PackedParameter]:
        """The parameters in these formats."""
        return pack_parameters(self.parameters, self.quantization)

    def check_tensors(self) -> None:
        """Require the tensors of all parameters, before anything is planned or compiled for them.

        Raises:
            ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
        """
        with load_errors(self.directory.path):
            make_plan(self.packed, self.source)
