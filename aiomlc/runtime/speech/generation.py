"""The special tokens and the rules of a model that transcribes speech, from its files."""

from __future__ import annotations

__all__ = (
    "ChunkFeatures",
    "SpeechTokens",
    "read_chunk_features",
    "read_log_mel",
    "read_speech_tokens",
)

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import AudioConfig, SpeechConfig
from aiomlc.models.config.fields import Fields
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.speech.segments import FRAMES_PER_TIMESTAMP
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import load_errors

_GENERATION = "generation_config.json"
_PREPROCESSOR = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"  # Of transformers 5, which nests the features' settings.
_SAMPLE_RATE, _HOP, _FFT_SIZE = 16_000, 160, 400
_MIN_SAMPLES = 8000  # Of Qwen 3 ASR, by default.


@dataclass(frozen=True, slots=True)
class ChunkFeatures:
    """The features of an audio tower that reads chunks."""

    log_mel: LogMel
    min_samples: int  #: The length to which a shorter recording is padded with zeros.


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechTokens:
    """The token ids that control a model, and those that it must not generate."""

    end: int
    start: int
    no_timestamps: int  #: The first timestamp follows it.
    previous: int | None = None  #: Begins the text before a window; None if there is none.
    languages: Mapping[str, int] = field(default_factory=dict)  #: By code; empty for one language.
    tasks: Mapping[str, int] = field(default_factory=dict)  #: `transcribe` and `translate`.
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()  #: As the first token of a window.
    max_first_timestamp: int | None = None  #: The largest timestamp at the start, as an index.

    @property
    def first_timestamp(self) -> int:
        """The token of 0 seconds; each one after it is 20 ms later."""
        return self.no_timestamps + 1

    @property
    def no_speech(self) -> int:
        """The token whose probability at the start is that of silence."""
        return self.no_timestamps - 1


def read_log_mel(files: ConfigFiles, config: SpeechConfig) -> LogMel:
    """Return the features of a model, from `preprocessor_config.json`.

    Raises:
        ModelLoadError: If a field is invalid, or does not fit the model.
    """
    path = files.path(_PREPROCESSOR)
    fields = Fields(files.object(_PREPROCESSOR) or {}, path)
    seconds = config.window_frames * _HOP // _SAMPLE_RATE
    return _read_log_mel(fields, config.num_mels, chunk_length=seconds)


def read_chunk_features(files: ConfigFiles, config: AudioConfig) -> ChunkFeatures:
    """Return the features of an audio tower, from `processor_config.json` or, if it does not have
    them, `preprocessor_config.json`.

    Raises:
        ModelLoadError: If a field is invalid, or does not fit the tower.
    """
    nested = Fields(files.object(_PROCESSOR) or {}, files.path(_PROCESSOR))
    with load_errors(nested.path):
        fields = nested.nested("feature_extractor")
    if not fields.names():
        fields = Fields(files.object(_PREPROCESSOR) or {}, files.path(_PREPROCESSOR))
    with load_errors(fields.path):
        min_samples = fields.integer("min_length", _MIN_SAMPLES)
        if "dither" in fields and not fields.is_zero("dither"):
            raise fields.error("dither", "must be 0: noise is not added to recordings")

    return ChunkFeatures(_read_log_mel(fields, config.num_mels), min_samples)


def _read_log_mel(fields: Fields, num_mels: int, **others: int) -> LogMel:
    required = {
        "feature_size": num_mels,
        "sampling_rate": _SAMPLE_RATE,
        "hop_length": _HOP,
        "n_fft": _FFT_SIZE,
        **others,
    }
    with load_errors(fields.path):
        for name, expected in required.items():
            if (value := fields.integer(name, expected)) != expected:
                raise fields.error(name, f"must be {expected}, got {value}")

    return LogMel(num_mels, _SAMPLE_RATE, _HOP, _FFT_SIZE)


def read_speech_tokens(files: ConfigFiles, config: SpeechConfig) -> SpeechTokens:
    """Return the special tokens of a model, from `generation_config.json`.

    Raises:
        ModelLoadError: If a field is missing or invalid.
    """
    path = files.path(_GENERATION)
    fields = Fields(files.object(_GENERATION) or {}, path)
    reader = _TokenReader(fields, config.vocab_size)
    is_multilingual = fields.boolean("is_multilingual", False)
    with load_errors(path):
        tokens = SpeechTokens(
            end=reader.token("eos_token_id"),
            start=reader.token("decoder_start_token_id"),
            no_timestamps=reader.token("no_timestamps_token_id"),
            previous=reader.optional("prev_sot_token_id"),
            languages=_by_code(fields, reader.named("lang_to_id")) if is_multilingual else {},
            tasks=reader.named("task_to_id") if is_multilingual else {},
            suppressed=reader.tokens("suppress_tokens"),
            suppressed_first=reader.tokens("begin_suppress_tokens"),
            max_first_timestamp=fields.integer("max_initial_timestamp_index")
            if "max_initial_timestamp_index" in fields
            else None,
        )
        _check(tokens, fields, config)
        return tokens


def _by_code(fields: Fields, tokens: Mapping[str, int]) -> dict[str, int]:
    codes = {name.strip("<|>"): token for name, token in tokens.items()}
    if "" in codes or len(codes) < len(tokens):
        raise fields.error("lang_to_id", f"must have different codes, got {safe_repr([*tokens])}")

    return codes


def _check(tokens: SpeechTokens, fields: Fields, config: SpeechConfig) -> None:
    """Require that a token is left at each step, whatever the rules suppress."""
    end, first = tokens.end, tokens.first_timestamp
    count = config.window_frames // FRAMES_PER_TIMESTAMP + 1
    if not end < first <= config.vocab_size - count:
        raise fields.error(
            "no_timestamps_token_id",
            f"must be at least eos_token_id, {end}, and be followed by {count} timestamps within "
            f"{config.vocab_size} tokens, got {tokens.no_timestamps}",
        )

    suppressed = {
        "suppress_tokens": tokens.suppressed,
        "begin_suppress_tokens": tokens.suppressed_first,
    }
    for name, ids in suppressed.items():
        if ids and max(ids) >= first:
            raise fields.error(name, f"must have no timestamps, from {first}, got {max(ids)}")

    if end in tokens.suppressed:
        raise fields.error("suppress_tokens", f"must not have eos_token_id, {end}")

    if not set(range(end)).difference(*suppressed.values()):
        raise fields.error(
            "suppress_tokens",
            f"must leave a token of text, below {end}, together with begin_suppress_tokens",
        )


class _TokenReader:
    """Reads token ids, each of which must be in the vocabulary."""

    def __init__(self, fields: Fields, vocab_size: int) -> None:
        self._fields = fields
        self._vocab_size = vocab_size

    def token(self, name: str) -> int:
        return self._checked(name, self._fields.integer(name))

    def optional(self, name: str) -> int | None:
        return self.token(name) if name in self._fields else None

    def tokens(self, name: str) -> tuple[int, ...]:
        ids = self._fields.integers(name) if name in self._fields else []
        return tuple(self._checked(name, token) for token in ids)

    def named(self, name: str) -> dict[str, int]:
        inner = self._fields.nested(name)
        reader = _TokenReader(inner, self._vocab_size)
        return {each: reader._checked(each, inner.value(each)) for each in inner.names()}

    def _checked(self, name: str, value: object) -> int:
        if type(value) is not int or not 0 <= value < self._vocab_size:
            problem = f"must have token ids in [0, {self._vocab_size}), got {value!r}"
            raise self._fields.error(name, problem)

        return value
