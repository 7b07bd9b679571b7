"""The session of an open model: prompts are encoded and submitted here."""

from __future__ import annotations

__all__ = ("EncoderSession", "ModelSession", "SessionProvider")

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, final

from anyio.lowlevel import checkpoint

from aiomlc.api.generation.sampling import SamplingRequest, sequence_options
from aiomlc.api.observability.telemetry import Operation, start_span
from aiomlc.api.session.time_limit import Elapsed, time_limit
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    DeadlineExceededError,
    GrammarError,
    PromptTooLongError,
)
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.audio.reference import AudioReference
from aiomlc.runtime.concurrency.turns import preparation_turns
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.engine_task import EngineTask
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.runtime.images.sources import ImageSources
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.tokenization.prompt_encoder import PromptEncoder
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import outside_vocabulary
from aiomlc.validation.json_values import short_repr

if TYPE_CHECKING:
    from aiomlc.runtime.audio.recording import Recording
    from aiomlc.runtime.embedding.embedder import Classifier, Embedder, EncoderTask
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
    from aiomlc.runtime.speech.transcriber import Transcriber

# Encoding a longer prompt takes over 10 ms, which would block the event loop for too long.
_MAX_INLINE_CHARACTERS = 20_000
_MAX_AUDIOS = 16  # Of a request.


@final
class ModelSession:
    """An open engine and its decoder.

    Args:
        engine: The engine.
        model: Its decoder.
        image_sources: Where the images of requests may come from; None is `data:` URLs and bytes.
        audio_limits: The limits on the audio of requests; None is the default ones.
    """

    def __init__(
        self,
        engine: EngineClient,
        model: LoadedModel,
        image_sources: ImageSources | None = None,
        audio_limits: AudioLimits | None = None,
    ) -> None:
        self.engine = engine
        self.model = model
        self.audio_limits: AudioLimits = audio_limits or AudioLimits()
        self.open_recordings: set[str] = set()  #: The ids of requests that hold a recording.
        self._image_sources = image_sources or ImageSources()
        self._encoder = PromptEncoder(model.tokenizer, model.context_window)

    @property
    def task(self) -> EngineTask:
        """The task of the engine."""
        return self.engine.task

    async def load_images(self, images: Sequence[tuple[str, ImageReference]]) -> list[ImageData]:
        """Load the images of a request.

        Args:
            images: Each with the path of its field.

        Raises:
            BadRequestError: If the model reads no images, or one cannot be loaded.
            MissingPackageError: If a package of the extra `vision` is not installed.
        """
        if not images:
            return []

        self.model.require_vision("messages")
        return await self._image_sources.load(images)

    async def load_audios(self, audios: Sequence[tuple[str, AudioReference]]) -> list[Recording]:
        """Load the audio of a request.

        Args:
            audios: Each with the path of its field.

        Raises:
            BadRequestError: If the model reads no audio, there is too much, or it cannot be loaded.
            PromptTooLongError: If its positions alone fill the context window.
            MissingPackageError: If a package of the extra `audio` is not installed.
        """
        if not audios:
            return []

        path, _ = audios[-1]
        self.model.require_audio(path)
        if len(audios) > _MAX_AUDIOS:
            raise BadRequestError(
                f"{path}: a request must have at most {_MAX_AUDIOS} parts of audio, got "
                f"{len(audios)}",
                param=path,
            )

        from aiomlc.runtime.audio.sources import load_reference  # Imported late, with NumPy.

        recordings: list[Recording] = []
        seconds = 0.0
        for param, part in audios:
            recordings.append(await load_reference(part, self.audio_limits, param))
            seconds += recordings[-1].seconds
            # At once, since a small file may have an hour.
            self.check_length(range(int(seconds * self.model.audio_rows_per_second)))
        return recordings

    async def encode(
        self, prompt: str, method: Callable[[Tokenizer, str], list[int]] = Tokenizer.encode
    ) -> list[int]:
        """Return the token ids of a prompt, computed in a worker thread if it takes long.

        Raises:
            PromptTooLongError: If the prompt cannot fit the context window because of its size.
        """
        encode = partial(self._encoder.encode, prompt, method=method)
        # The first use of another method copies the tokenizer.
        if len(prompt) > _MAX_INLINE_CHARACTERS or method is not Tokenizer.encode:
            return await run_in_worker(encode)

        await preparation_turns().proceed()
        return encode()

    async def encode_prompt(
        self,
        prompt: str | Sequence[int],
        *,
        add_special_tokens: bool | None = None,
        split_special_tokens: bool | None = None,
    ) -> Prompt:
        """Encode a prompt, which is a string or already token ids.

        Args:
            prompt: The prompt. Nothing is added to token ids.
            add_special_tokens: Whether text gets the tokenizer's special tokens; None means what
                the model does.
            split_special_tokens: Whether the names of special tokens in text are plain text; None
                means what the engine does.

        Raises:
            BadRequestError: If a token id is not in the vocabulary.
            PromptTooLongError: If the prompt fills the context window.
        """
        if isinstance(prompt, str):
            method = (
                Tokenizer.encode_split
                if self.model.splits(split_special_tokens)
                else Tokenizer.encode
            )
            return Prompt(self.model.as_text(await self.encode(prompt, method), add_special_tokens))

        self.check_length(prompt)
        if (token_id := outside_vocabulary(prompt, self.model.vocab_size)) is not None:
            raise BadRequestError(
                f"prompt: token ids must be in [0, {self.model.vocab_size}), "
                f"got {short_repr(token_id)}",
                param="prompt",
            )

        await checkpoint()
        return Prompt(prompt)

    async def encode_chat(
        self,
        prompt: str,
        *,
        images: Sequence[ImageData] = (),
        audios: Sequence[Recording] = (),
        add_special_tokens: bool | None = None,
        split_special_tokens: bool | None = None,
    ) -> Prompt:
        """Encode a rendered chat, with the prefix tokens of the chat template.

        Special tokens are only added if this is requested: the template writes those of a chat. If
        they are split, the messages of the chat were marked (`Tokenizer.mark_special_tokens`).

        Args:
            prompt: The rendered chat, with a placeholder for each image and each recording.
            images: The images, in the order of their placeholders.
            audios: The recordings, in the order of theirs.
            add_special_tokens: Whether the tokenizer's special tokens are added.
            split_special_tokens: Whether the names of special tokens in messages are plain text;
                None means what the engine does.

        Raises:
            BadRequestError: If the model does not read images or audio, or the number of
                placeholders is another one.
            PromptTooLongError: If the prompt cannot fit the context window because of its size.
        """
        template = self.model.chat_template
        prefix = (template.system_prefix_token_ids if template is not None else None) or ()
        method = (
            Tokenizer.encode_marked if self.model.splits(split_special_tokens) else Tokenizer.encode
        )

        async def encode(text: str) -> list[int]:
            ids = self.model.as_text(await self.encode(text, method), bool(add_special_tokens))
            return [*prefix, *ids]

        if audios:
            # A model has one tower at most, so a chat with images as well was refused.
            return await self.model.require_audio("messages").prompt(prompt, audios, encode)

        if not images:
            return Prompt(await encode(prompt))

        vision = self.model.require_vision("messages")
        return await vision.prompt(prompt, images, encode)

    async def compile(self, grammar: Grammar | None, param: str, num_choices: int) -> object:
        """Return the compiled grammar, or None if `grammar` is None.

        Args:
            param: The field of the request that requires the grammar.

        Raises:
            GrammarError: If the grammar is invalid or uses an unsupported feature.
            BadRequestError: If the model does not support structured output.
        """
        if grammar is None or self.model.is_echo:
            return None

        if self.model.grammars is None:
            raise BadRequestError(
                f"{param}: this model does not support structured output", param=param
            )

        try:
            return await self.model.grammars.compile(grammar, num_choices)
        except GrammarError as error:
            raise GrammarError(f"{param}: {error}", param=param) from None

    def open_stream(  # noqa: PLR0913 - all parts of a submission.
        self,
        prompt: Prompt,
        request: SamplingRequest,
        request_id: str,
        num_choices: int = 1,
        grammar: object = None,
        operation: Operation = "chat",
        *,
        elapsed: float = 0,
    ) -> DeltaStream:
        """Submit a prompt and return the stream of its completions. Does not block.

        Args:
            elapsed: The seconds of the request's time limits that have passed.

        Raises:
            PromptTooLongError: If the prompt leaves no room for a completion.
            RequestError: If the request is rejected for another reason.
            EngineError: If the engine is closed, dead or overloaded.
        """
        span = start_span(operation, self.model.model_name, request, request_id, num_choices)
        try:
            self.check_length(prompt)
            options = sequence_options(request, self.model)
            options = replace(options, grammar=grammar, elapsed=elapsed)
            return self.engine.open_stream(prompt, options, request_id, num_choices, span)
        except AiomlcError as error:
            if span is not None:
                span.on_end(error)
            raise

    @contextmanager
    def preparation(
        self,
        request: SamplingRequest,
        request_id: str,
        num_choices: int = 1,
        operation: Operation = "chat",
    ) -> Iterator[Elapsed]:
        """Limit what precedes `open_stream` to the time limits of a request.

        Raises:
            DeadlineExceededError: If a limit passes within the scope.
        """
        try:
            with time_limit(request, request_id) as elapsed:
                yield elapsed
        except (DeadlineExceededError, PromptTooLongError) as error:
            span = start_span(operation, self.model.model_name, request, request_id, num_choices)
            if span is not None:
                span.on_end(error)
            raise

    def check_prompt(self, prompt: Prompt) -> None:
        """Require a prompt with tokens and with room for a completion.

        Raises:
            BadRequestError: If the prompt has no tokens.
            PromptTooLongError: If the prompt fills the context window.
        """
        if not prompt:
            raise BadRequestError("prompt: must have at least one token", param="prompt")

        self.check_length(prompt)

    def check_length(self, prompt: Sized) -> None:
        """Require a prompt that leaves room for a completion.

        Raises:
            PromptTooLongError: If the prompt fills the context window.
        """
        window = self.model.context_window
        if len(prompt) >= window:
            raise PromptTooLongError(prompt_tokens=len(prompt), context_window=window)


@final
class EncoderSession:
    """An open engine and its encoder or speech model."""

    def __init__(self, engine: EncoderEngine) -> None:
        self.engine = engine

    @property
    def task(self) -> EngineTask:
        """The task of the engine."""
        return self.engine.task

    @property
    def model(self) -> Embedder | Classifier | Transcriber:
        """The encoder or speech model."""
        return self.engine.model


class SessionProvider(Protocol):
    """A provider of sessions, which opens the model if it is not open yet."""

    async def session(self) -> ModelSession:
        """Return the session of a decoder.

        Raises:
            BadRequestError: If the model is an encoder.
        """
        ...

    async def transcriber(self) -> ModelSession | EncoderEngine:
        """Return what transcribes: the session of a decoder, or the engine of a speech model.

        Raises:
            BadRequestError: If the model does not transcribe.
        """
        ...

    async def encoder(self, task: EncoderTask) -> EncoderEngine:
        """Return the engine of an encoder or speech model for a task.

        Raises:
            BadRequestError: If the model is for another task.
        """
        ...
