"""Open a model that transcribes speech."""

from __future__ import annotations

__all__ = ("load_speech",)

from typing import Final

from anyio import to_thread

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import SpeechConfig
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import LoadProgress, OnProgress
from aiomlc.runtime.loading.text_files import read_tokenizer
from aiomlc.runtime.native.speech import NativeSpeech
from aiomlc.runtime.speech.batcher import SpeechBatcher
from aiomlc.runtime.speech.generation import read_log_mel, read_speech_tokens
from aiomlc.runtime.speech.transcriber import Transcriber
from aiomlc.validation.model_files import load_errors
from aiomlc.weights import map_weights

_NUM_SLOTS: Final = 4  # Windows that are decoded together: in large-v3, each takes 0.6 GB.


async def load_speech(
    facts: ModelFacts, *, device: str, engine_config: EngineConfig, report: OnProgress
) -> LoadedEncoder:
    """Open a model that transcribes speech.

    Raises:
        BadRequestError: If a setting does not apply to such models.
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    if engine_config.max_single_sequence_length is not None:
        raise BadRequestError(
            f"engine_config.max_single_sequence_length = "
            f"{engine_config.max_single_sequence_length} is not supported by speech models: leave "
            "it out",
            param="max_single_sequence_length",
        )

    await to_thread.run_sync(facts.check_tensors)
    prepared = await prepare_model(facts, device, engine_config, report)
    report(LoadProgress("load", None, "opening the model"))
    return await to_thread.run_sync(_assemble, facts, prepared, engine_config)


def _assemble(facts: ModelFacts, prepared: PreparedModel, config: EngineConfig) -> LoadedEncoder:
    directory, model = facts.directory, facts.config
    assert isinstance(model, SpeechConfig)
    with load_errors(directory.path):
        tokenizer = read_tokenizer(directory)
    if tokenizer.vocab_size > model.vocab_size:
        raise ModelLoadError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model only "
            f"{model.vocab_size}",
            path=directory.path,
            field="vocab_size",
        )

    weights = prepared.weights
    params = map_weights(weights.path, weights.nbytes, weights.params)
    native = NativeSpeech(prepared.library, params, prepared.num_threads, _NUM_SLOTS)
    return LoadedEncoder(
        Transcriber(
            batcher=SpeechBatcher(native),
            tokenizer=tokenizer,
            features=read_log_mel(directory.files, model),
            tokens=read_speech_tokens(directory.files, model),
            limits=AudioLimits(max_seconds=config.max_audio_seconds),
            model_name=directory.name,
            window_frames=model.window_frames,
            max_tokens=model.max_tokens,
        )
    )
