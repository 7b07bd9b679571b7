"""`python -m tests.model.loading.mutated_process ROOT KIND FIRST COUNT`: open mutated directories.

Each outcome is a line of JSON on stdout. The line before it names the mutation, so that the last
line identifies the model that crashed or hung.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from aiomlc import AiomlcError, EngineConfig, MLCEngine, ModelLoadError, RequestError, plan_memory
from aiomlc.errors import RequestFailedError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models import read_description
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import check_tensors
from aiomlc.runtime.templates.prompt_template import load_prompt_template
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.model.loading.mutations import BASES, mutate

MEMORY = 6 << 30  # Bytes of address space.
CPU_SECONDS = 600


def answer(directory: Path, base: str) -> list[object]:
    """Return what a model generates or embeds; every way to read its files is used."""
    config = EngineConfig(num_threads=1, max_total_sequence_length=256)
    if base == "encoder":
        with MLCEngine(directory, engine_config=config) as engine:
            vectors = engine.embeddings.create(input=["ab", "hello"]).data
        return [[round(float(x), 5) for x in vector.embedding] for vector in vectors]

    plan_memory(directory, engine_config=config)
    messages = [{"role": "user", "content": "Hello"}]
    with MLCEngine(directory, engine_config=config) as engine:
        text = engine.completions.create(prompt="Hello", max_tokens=4, temperature=0)
        chat = engine.chat.completions.create(messages=messages, max_tokens=4, temperature=0)
    return [text.choices[0].text, chat.choices[0].message.content]


def description(directory: Path) -> list[object]:
    """Return what is read of a model before anything is compiled for it."""
    model = find_model(directory)
    check_tensors(model, None)
    config = read_description(model.path).config
    tokenizer = Tokenizer.from_json(read_tokenizer_json(read_gguf(model.path)))
    template = load_prompt_template(model.path, config.vocab_size)
    options = model.sampling_defaults()
    values = (tokenizer.encode("Hello"), template and template.source, options)
    return [str(config), *map(str, values), *model.eos_token_ids(config.vocab_size)]


def outcome(directory: Path, base: str, kind: str) -> dict[str, object]:
    """Return the answer, or the error and whether it is one that the caller can act on."""
    try:
        reads = kind == "gguf headers"
        return {"answer": description(directory) if reads else answer(directory, base)}
    except Exception as error:  # noqa: BLE001 - the result of the trial.
        text = f"{type(error).__name__}: {error}"
        return {"error": text[:500], "length": len(text), "problem": _problem(error, directory)}


def _problem(error: Exception, directory: Path) -> str | None:
    """Return why an error is not acceptable; None if it is."""
    if not isinstance(error, AiomlcError):
        return "not typed"

    # The plan of an InsufficientMemoryError names the model; the others concern one request.
    if isinstance(error, (InsufficientMemoryError, RequestError, RequestFailedError)):
        return None

    is_named = isinstance(error, ModelLoadError) and error.path is not None
    return None if is_named and str(directory) in str(error) else "names no file"


def main(arguments: list[str]) -> None:
    """Try the mutations FIRST to FIRST + COUNT - 1 of the models of a kind below ROOT."""
    root, bases = Path(arguments[0]), BASES[arguments[1]]
    first, count = int(arguments[2]), int(arguments[3])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for seed in range(first, first + count):
        base = bases[seed % len(bases)]
        with tempfile.TemporaryDirectory(dir=root) as name:
            directory = Path(name) / base
            shutil.copytree(root / base, directory)
            mutation = mutate(directory, seed)
            _write(seed=seed, base=base, mutation=str(mutation))
            result = outcome(directory, base, arguments[1])
            _write(seed=seed, is_harmless=mutation.is_harmless, **result)
    _write(megabytes=_peak_megabytes())


def _peak_megabytes() -> int:
    """Return the peak of this process; `ru_maxrss` would start at that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _write(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
