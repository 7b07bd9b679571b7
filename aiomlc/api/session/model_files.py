"""Properties of a model that are read from its files before it is open."""

from __future__ import annotations

__all__ = ("ENCODER_MESSAGE", "ModelFiles", "ModelInfo", "model_info")

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, final

from aiomlc.config import ECHO, EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.models import ModelConfig, describe_model
from aiomlc.runtime.mock.model import echo_model
from aiomlc.runtime.templates.prompt_template import PromptTemplate, load_prompt_template
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from aiomlc.runtime.loading.model_directory import ModelDirectory

ENCODER_MESSAGE = "the model is an encoder or a speech model, which does not continue text"


class ModelInfo(Protocol):
    """The properties of a decoder, whether it is open or not."""

    @property
    def model_name(self) -> str:
        """The name of the model's directory."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        ...

    @property
    def chat_template(self) -> PromptTemplate | None:
        """The chat template, if the model has one."""
        ...

    @property
    def context_window(self) -> int:
        """The maximum number of tokens of a sequence: prompt and completion."""
        ...


@final
class ModelFiles:
    """The properties of a model that is not open. Each is read when it is first used.

    Raises:
        ModelLoadError: If a file is missing or invalid.
        BadRequestError: If the model is an encoder; not raised by `model_name` and `chat_template`.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    @property
    def model_name(self) -> str:
        """The name of the model's directory."""
        return self._directory.name

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        self._check_decoder()
        return Tokenizer(self._directory.path)

    @cached_property
    def chat_template(self) -> PromptTemplate | None:
        """The chat template; None for an encoder or a speech model."""
        if self._model.kind != "decoder":
            return None

        return load_prompt_template(self._directory.files, self._model.vocab_size)

    @cached_property
    def context_window(self) -> int:
        """The maximum number of tokens of a sequence, planned from the memory that is free now."""
        from aiomlc.runtime.loading.memory_plan import (
            plan_memory,  # Imported late, like the loader.
        )

        self._check_decoder()
        plan = plan_memory(self._directory, self._config.mode or "local", self._config)
        return plan.limits.context_window

    @cached_property
    def _directory(self) -> ModelDirectory:
        from aiomlc.runtime.loading.model_directory import (
            find_model,  # Imported late, like the loader.
        )

        return find_model(self._config.model)

    @cached_property
    def _model(self) -> ModelConfig:
        return describe_model(self._directory.files).config

    def _check_decoder(self) -> None:
        if self._model.kind != "decoder":
            raise BadRequestError(ENCODER_MESSAGE, param="model")


def model_info(config: EngineConfig) -> ModelInfo:
    """Return the properties of the model that a configuration names, without opening it."""
    # basedpyright does not accept a cached_property as a property of a protocol.
    return echo_model() if config.model == ECHO else ModelFiles(config)  # pyright: ignore[reportReturnType]
