"""`AsyncEmbeddingEngine`: upstream's engine of embeddings, for programs that are written for it."""

from __future__ import annotations

__all__ = ("AsyncEmbeddingEngine",)

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, final

from anyio import to_thread

from aiomlc.api.engines.sync_engine import MLCEngine
from aiomlc.api.session.loader import Loader, Model
from aiomlc.devices import Device
from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import check_str, wrong_type

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.pooling import Pooling

_POOLINGS = ("mean", "cls", "last")


@final
class AsyncEmbeddingEngine:
    """Vectors of texts, for threads and for tasks of any event loop.

    The constructor opens the model and blocks until it is ready. A text that is too long is cut.
    New programs use `AsyncMLCEngine.embeddings`.

    Args:
        model: The directory of an encoder.
        model_lib: Not supported; the library is compiled.
        device: As of `MLCEngine`.
        pooling_strategy: None is the model's own.
        loader: How the model is opened, for tests.

    Raises:
        BadRequestError: an argument is invalid or not supported, or the model is no encoder.
        ModelLoadError: the model cannot be opened.
    """

    def __init__(
        self,
        model: Model | None = None,
        model_lib: Model | None = None,
        device: Device = "auto",
        *,
        pooling_strategy: Pooling | None = None,
        loader: Loader | None = None,
    ) -> None:
        if pooling_strategy is not None and pooling_strategy not in _POOLINGS:
            raise BadRequestError(
                f"pooling_strategy is {pooling_strategy!r}, not one of {', '.join(_POOLINGS)}",
                param="pooling_strategy",
            )

        self._pooling = pooling_strategy
        self._engine = MLCEngine(model, device, model_lib=model_lib, loader=loader)
        try:
            self.embed([" "])  # Only an encoder gets further.
        except BadRequestError:
            self.terminate()
            raise

    def embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """The vectors, of length 1, in the order of the texts, and the tokens of all. Blocks.

        Raises:
            BadRequestError: there are no texts, or one of them has no tokens or is none.
            EngineError: the engine is closed.
        """
        if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Sequence):
            raise wrong_type("inputs", inputs, "a list of texts")

        for index, text in enumerate(inputs):
            check_str(f"inputs[{index}]", text)

        answer = self._engine.embeddings.create(
            input=list(inputs), pooling=self._pooling, truncate=True
        )
        vectors = [list(map(float, item.embedding)) for item in answer.data]
        return vectors, answer.usage.prompt_tokens

    async def async_embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """As `embed`, beside the event loop. A caller that is cancelled leaves at once."""
        return await to_thread.run_sync(partial(self.embed, inputs), abandon_on_cancel=True)

    def terminate(self) -> None:
        """Free the model; callers that wait get `EngineClosedError`. Idempotent."""
        self._engine.terminate()
