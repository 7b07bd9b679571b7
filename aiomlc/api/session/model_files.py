"""What an engine tells of its model before the model is open: what its files say."""

from __future__ import annotations

__all__ = ("ModelFacts", "ModelFiles", "read_facts")

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, final

from aiomlc.config import ECHO, EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.models import EncoderConfig, ModelConfig, read_description
from aiomlc.runtime.mock.model import echo_model
from aiomlc.runtime.templates.prompt_template import PromptTemplate, load_prompt_template
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from aiomlc.runtime.loading.model_directory import ModelDirectory


class ModelFacts(Protocol):
    """A model that generates, open or not."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back."""

    @property
    def chat_template(self) -> PromptTemplate | None:
        """What makes the prompts of chats."""

    @property
    def context_window(self) -> int:
        """Tokens of one sequence, prompt and completion."""


@final
class ModelFiles:
    """The facts of a model that is not open, read when they are asked for, each once.

    Raises:
        ModelLoadError: a file is missing or at fault.
        BadRequestError: the model is an encoder, which has no context window and no template.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back."""
        self._check_generates()
        return Tokenizer.from_file(self._directory.path / "tokenizer.json")

    @cached_property
    def chat_template(self) -> PromptTemplate | None:
        """What makes the prompts of chats; None for an encoder."""
        if isinstance(self._model, EncoderConfig):
            return None

        return load_prompt_template(self._directory.path, self._model.vocab_size)

    @cached_property
    def context_window(self) -> int:
        """Tokens of one sequence: what an engine plans that opens now."""
        from aiomlc.runtime.loading.memory_plan import plan_memory  # As the loader.

        self._check_generates()
        plan = plan_memory(self._directory, self._config.mode or "local", self._config)
        return plan.limits.context_window

    @cached_property
    def _directory(self) -> ModelDirectory:
        from aiomlc.runtime.loading.model_directory import find_model  # As the loader.

        return find_model(self._config.model)

    @cached_property
    def _model(self) -> ModelConfig:
        return read_description(self._directory.path).config

    def _check_generates(self) -> None:
        if isinstance(self._model, EncoderConfig):
            raise BadRequestError("the model is an encoder, which generates nothing", param="model")


def read_facts(config: EngineConfig) -> ModelFacts:
    """The facts of the model of a configuration, which no engine has opened."""
    return echo_model() if config.model == ECHO else ModelFiles(config)
