"""The configuration of an MLC directory: `mlc-chat-config.json` and the tokenizer's files."""

from __future__ import annotations

__all__ = ("gen_config",)

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as fields_of
from os import PathLike
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import ModelConfig
from aiomlc.runtime.embedding.pooling import read_sentence_config
from aiomlc.runtime.loading.progress import LoadProgress, ignore_progress
from aiomlc.runtime.templates.registry import get_conversation_template
from aiomlc.tools.mlc_format import format_named
from aiomlc.tools.model_config import SizeOverrides, mlc_model_config, mlc_sizes
from aiomlc.tools.output_files import check_conflicts, staged_output, write_error
from aiomlc.tools.source_model import fetch_source, read_hugging_face_config, read_tower
from aiomlc.tools.tokenizer_info import tokenizer_info
from aiomlc.validation import json_values
from aiomlc.validation.arguments import check_flag, check_path
from aiomlc.validation.model_files import (
    MAX_TOKENIZER_BYTES,
    load_errors,
    read_object,
    read_optional,
    read_text,
)
from aiomlc.validation.shortages import names_shortages

CONFIG_FILE: Final = "mlc-chat-config.json"
_TOKENIZER_FILES: Final = (
    "tokenizer.model",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
)
# MLC LLM does not know these; they make the directory the same model as its source.
_OTHER_FILES: Final = (
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
    "preprocessor_config.json",
    "processor_config.json",
    "generation_config.json",
    "modules.json",
    "1_Pooling/config.json",
    *(f"{n}_Dense/{name}" for n in (2, 3) for name in ("config.json", "model.safetensors")),
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "sparse_linear.pt",
    "sparse_linear.safetensors",
    "colbert_linear.pt",
    "colbert_linear.safetensors",
)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "temperature": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "top_p": 1.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SAMPLING: Final = tuple(name for name in _DEFAULTS if not name.endswith("_id"))
_POSITIVE: Final = ("prefill_chunk_size", "tensor_parallel_shards", "pipeline_parallel_stages")


@names_shortages
async def gen_config(  # noqa: PLR0913 - as MLC LLM's `gen_config`.
    config: str | PathLike[str],
    output: str | PathLike[str],
    *,
    quantization: str,
    conv_template: str,
    model_type: str = "auto",
    context_window_size: int | None = None,
    sliding_window_size: int | None = None,
    prefill_chunk_size: int | None = None,
    attention_sink_size: int | None = None,
    tensor_parallel_shards: int | None = None,
    pipeline_parallel_stages: int | None = None,
    max_batch_size: int = 128,
    force: bool = False,
    on_progress: Callable[[LoadProgress], object] | None = None,
) -> Path:
    """Write the `mlc-chat-config.json` of a Hugging Face model, and copy its tokenizer.

    Together with the weights of `convert_weights`, this makes a directory that opens here and in
    MLC LLM. A chat template in Jinja is copied as well, and takes precedence here.

    Args:
        config: The model: a directory, its `config.json`, or a repository of the Hugging Face hub.
        output: The directory to write to; it is made if it does not exist.
        quantization: MLC LLM's name of the weights' format, such as `q4f16_1`.
        conv_template: The name of a conversation template, such as `chatml`.
        model_type: The architecture; "auto" is that of `config.json`.
        context_window_size: Tokens of the longest sequence; None keeps those of the model.
        sliding_window_size: The window of all layers, -1 for none; None keeps that of the model.
        prefill_chunk_size: Tokens of a forward pass.
        attention_sink_size: First tokens that stay visible in a sliding window.
        tensor_parallel_shards: GPUs that share each layer, in MLC LLM.
        pipeline_parallel_stages: GPUs that share the layers, in MLC LLM.
        max_batch_size: The batch size for which MLC LLM compiles.
        force: Whether to replace files that are in `output`.
        on_progress: Called with the progress of a download.

    Returns:
        The path of `mlc-chat-config.json`.

    Raises:
        BadRequestError: If an argument is invalid, or files would be replaced without `force`.
        ModelLoadError: If a file of the model is missing or invalid, the template is unknown, or a
            file cannot be written.
    """
    overrides = SizeOverrides(
        context_window_size=context_window_size,
        sliding_window_size=sliding_window_size,
        prefill_chunk_size=prefill_chunk_size,
        attention_sink_size=attention_sink_size,
        tensor_parallel_shards=tensor_parallel_shards,
        pipeline_parallel_stages=pipeline_parallel_stages,
        max_batch_size=max_batch_size,
    )
    _check_sizes(overrides)
    check_flag("force", force)
    check_path("output", output)
    format_named(quantization)
    directory = await fetch_source(config, on_progress or ignore_progress)
    generate = _Generator(directory, quantization, conv_template, model_type, overrides)
    destination = await to_thread.run_sync(_check_output, directory, output, force)
    document = await to_thread.run_sync(generate.document)
    async with staged_output(destination) as staged:
        await to_thread.run_sync(_write, directory, destination, staged.path, document)
        await to_thread.run_sync(staged.publish, CONFIG_FILE)
    return destination / CONFIG_FILE


def _check_sizes(overrides: SizeOverrides) -> None:
    for field in fields_of(overrides):
        value = getattr(overrides, field.name)
        minimum = 1 if field.name in (*_POSITIVE, "max_batch_size") else -1
        if value is not None and (type(value) is not int or value < minimum):
            raise BadRequestError(
                f"{field.name} must be an integer >= {minimum}, got {value!r}", param=field.name
            )


def _check_output(directory: Path, output: str | PathLike[str], force: bool) -> Path:
    path = Path(output).absolute()
    is_source = path.exists() and path.samefile(directory)
    copied = () if is_source else (*_TOKENIZER_FILES, *_OTHER_FILES)
    check_conflicts(path, (CONFIG_FILE, *copied), force=force)
    return path


class _Generator:
    """Makes the contents of `mlc-chat-config.json`."""

    def __init__(
        self,
        directory: Path,
        quantization: str,
        conv_template: str,
        model_type: str,
        overrides: SizeOverrides,
    ) -> None:
        self._directory = directory
        self._quantization = quantization
        self._conv_template = conv_template
        self._model_type = model_type
        self._overrides = overrides

    def document(self) -> dict[str, Any]:
        """Return the contents, with MLC LLM's fields in its order."""
        config = read_hugging_face_config(self._directory, self._model_type)
        fields = read_object(self._directory / "config.json")
        sizes = mlc_sizes(config, self._overrides)
        batch = self._overrides.max_batch_size
        tower = read_tower(self._directory, config)
        tokenizer = _read_tokenizer(self._directory)
        return {
            "version": "0.1.0",
            "model_type": config.model_type if tower is None else tower.model_type,
            "quantization": self._quantization,
            "model_config": mlc_model_config(fields, config, sizes, batch, tower),
            "vocab_size": config.vocab_size,
            **sizes,
            "active_vocab_size": _active_vocabulary(tokenizer, config.vocab_size),
            **self._generation(fields, _SAMPLING),
            "tokenizer_files": [n for n in _TOKENIZER_FILES if (self._directory / n).exists()],
            "tokenizer_info": tokenizer_info(tokenizer),
            "conv_template": _conversation(self._conv_template),
            **self._generation(fields, [name for name in _DEFAULTS if name not in _SAMPLING]),
            **self._task(config),
        }

    def _generation(self, config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return fields of the first file that has them: those of generation come first."""
        generation = read_optional(self._directory / "generation_config.json") or {}
        values = {}
        for name in names:
            found = (source.get(name) for source in (generation, config))
            values[name] = next((value for value in found if value is not None), _DEFAULTS[name])
        return values

    def _task(self, config: ModelConfig) -> dict[str, Any]:
        if config.kind == "decoder":
            return {"model_task": "chat", "embedding_metadata": None}

        settings = read_sentence_config(ConfigFiles(self._directory), "cls")  # As MLC LLM writes.
        metadata = {
            "model_type": "encoder",
            "pooling_strategy": settings.pooling,
            "normalize": settings.normalize,
        }
        return {"model_task": "embedding", "embedding_metadata": metadata}


def _read_tokenizer(directory: Path) -> Mapping[str, Any]:
    path = directory / "tokenizer.json"
    text = read_text(path, MAX_TOKENIZER_BYTES)
    with load_errors(path):
        tokenizer = json_values.read_json(text)
    if not isinstance(tokenizer, dict):
        raise ModelLoadError(f"{path}: must be a JSON object", path=path)

    return tokenizer


def _active_vocabulary(tokenizer: Mapping[str, Any], vocab_size: int) -> int:
    """Return the number of tokens: those of the vocabulary and those added to it."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, list):  # Of pairs of a token and its score.
        vocabulary = [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
    if not isinstance(vocabulary, (dict, list)):
        return vocab_size

    added = tokenizer.get("added_tokens") or []
    texts = [token.get("content") for token in added if isinstance(token, Mapping)]
    return len({*vocabulary, *texts})


def _conversation(name: str) -> dict[str, Any]:
    conversation = get_conversation_template(name)
    extensions = {
        extension
        for extension in ("tool_prompt_format", "bare_without_system")
        if getattr(conversation, extension) is None
    }
    return conversation.model_dump(mode="json", exclude=extensions)


def _write(directory: Path, output: Path, staged: Path, document: Mapping[str, Any]) -> None:
    try:
        if not (output.exists() and output.samefile(directory)):
            for name in (*_TOKENIZER_FILES, *_OTHER_FILES):
                if (directory / name).is_file():
                    (staged / name).parent.mkdir(exist_ok=True)
                    shutil.copyfile(directory / name, staged / name)
        (staged / CONFIG_FILE).write_text(json.dumps(document, indent=2), "utf-8")
    except OSError as error:
        raise write_error(staged, error) from None
