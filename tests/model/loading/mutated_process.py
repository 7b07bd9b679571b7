"""`python -m tests.model.loading.mutated_process ROOT KIND FIRST COUNT`: open mutated directories.

Each outcome is a line of JSON on stdout. The line before it names the mutation, so that the last
line identifies the model that crashed or hung.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from aiomlc import AiomlcError, EngineConfig, MLCEngine, ModelLoadError, RequestError, plan_memory
from aiomlc.errors import RequestFailedError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models import read_description
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.templates.prompt_template import load_prompt_template
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.model.loading.mutations import BASES, Mutation, mutate

MEMORY = 2 << 30  # Bytes of address space beside those of the first model.
GROWTH = 64 << 20  # Bytes of memory for a model beside those of the process, and of its files.
CPU_SECONDS = 600


def answer(directory: Path, base: str) -> list[object]:
    """Return what a model generates or embeds; every way to read its files is used."""
    if base == "encoder":
        with MLCEngine(directory, engine_config=EngineConfig(num_threads=1)) as engine:
            vectors = engine.embeddings.create(input=["ab", "hello"]).data
        answers = [[round(float(x), 5) for x in vector.embedding] for vector in vectors]
        assert all(math.isfinite(x) for numbers in answers for x in numbers), "not finite"
        return [*answers]

    config = EngineConfig(num_threads=1, max_total_sequence_length=256)
    plan_memory(directory, engine_config=config)
    messages = [{"role": "user", "content": "Hello"}]
    with MLCEngine(directory, engine_config=config) as engine:
        text = engine.completions.create(prompt="Hello", max_tokens=4, temperature=0)
        chat = engine.chat.completions.create(messages=messages, max_tokens=4, temperature=0)
    return [text.choices[0].text, chat.choices[0].message.content]


def description(directory: Path) -> list[object]:
    """Return what is read of a model before anything is compiled for it."""
    model = find_model(directory)
    ModelFacts(model).check_tensors()
    config = read_description(model.path).config
    tokenizer = Tokenizer.from_json(read_tokenizer_json(read_gguf(model.path)))
    template = load_prompt_template(ConfigFiles(model.path), config.vocab_size)
    options = model.sampling_defaults()
    values = (tokenizer.encode("Hello"), template and template.source, options)
    return [str(config), *map(str, values), *model.eos_token_ids(config.vocab_size)]


def outcome(
    directory: Path, base: str, kind: str, mutation: Mutation | None = None
) -> dict[str, object]:
    """Return the answer, or the error and whether it is one that the caller can act on."""
    try:
        reads = kind == "gguf headers"
        result = description(directory) if reads else answer(directory, base)
    except Exception as error:  # noqa: BLE001 - the result of the trial.
        text = f"{type(error).__name__}: {error}"
        problem = _problem(error, directory, mutation)
        return {"error": text[:500], "length": len(text), "problem": problem}

    is_wrong = mutation is not None and mutation.is_fatal
    return {"answer": result, "problem": "must not open" if is_wrong else None}


def _problem(error: Exception, directory: Path, mutation: Mutation | None) -> str | None:
    """Return why an error is not acceptable; None if it is."""
    if not isinstance(error, AiomlcError):
        return "not typed"

    # The plan of an InsufficientMemoryError names the model; the others concern one request.
    if isinstance(error, (InsufficientMemoryError, RequestError, RequestFailedError)):
        return "must not open" if mutation is not None and mutation.is_fatal else None

    if not isinstance(error, ModelLoadError) or error.path is None:
        return "names no file"

    if str(directory) not in str(error):
        return "names no file"

    if "more memory than there is" in str(error):
        return "allocates too much"

    if mutation is None or not mutation.tensors:
        return None

    is_named = error.tensor is not None and any(name in str(error) for name in mutation.tensors)
    return None if is_named else "names no tensor"


def main(arguments: list[str]) -> None:
    """Try the mutations FIRST to FIRST + COUNT - 1 of the models of a kind below ROOT."""
    root, kind = Path(arguments[0]), arguments[1]
    first, count = int(arguments[2]), int(arguments[3])
    # Not in the processes that this one starts, which limit their address space.
    has_sanitizer = "libasan" in os.environ.pop("LD_PRELOAD", "")
    intact = outcome(root / BASES[kind][0], BASES[kind][0], kind)
    assert "answer" in intact, intact
    _limit(has_sanitizer=has_sanitizer)
    for seed in range(first, first + count):
        base = BASES[kind][seed % len(BASES[kind])]
        with tempfile.TemporaryDirectory(dir=root) as name:
            directory = Path(name) / base
            shutil.copytree(root / base, directory)
            mutation = mutate(directory, seed, kind)
            _write(seed=seed, base=base, mutation=str(mutation))
            _try(directory, base, kind, seed, mutation)


def _try(directory: Path, base: str, kind: str, seed: int, mutation: Mutation) -> None:
    size = _num_bytes(directory)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # Reset the peak.
    before = _memory("VmRSS")
    result = outcome(directory, base, kind, mutation)
    peak = _memory("VmHWM")
    growth = peak - before
    if growth > GROWTH + 2 * size and result["problem"] is None:
        result["problem"] = f"takes {growth >> 20} MB for files of {size:,} bytes"
    memory = {"growth": growth >> 20, "megabytes": peak >> 20}
    _write(seed=seed, is_harmless=mutation.is_harmless, **memory, **result)


def _limit(*, has_sanitizer: bool) -> None:
    """Limit what comes after the first model; the sanitizer of addresses reserves terabytes."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    if not has_sanitizer:
        limit = _memory("VmSize") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _num_bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*"))


def _memory(field: str) -> int:
    """Return a field of this process's status, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split(f"{field}:")[1].split()[0]) << 10


def _write(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
