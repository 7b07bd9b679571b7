"""OpenVINO GenAI's continuous batching on the CPU, with a model that optimum-intel exported."""

from __future__ import annotations

__all__ = ("answer_once", "is_installed", "make_contestant")

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.suite.contestant import Setup, UnavailableError
from benchmarks.suite.offline import Generate, OfflineContestant

_WEIGHTS = {"q4f16_1": "int4", "q0bf16": "fp16", "q0f32": "fp16"}
_CACHE_GIGABYTES = 2


def is_installed() -> bool:
    return importlib.util.find_spec("openvino_genai") is not None


def make_contestant(setup: Setup) -> OfflineContestant:
    """Raises `UnavailableError` where the package or the exported model is missing."""
    if not is_installed():
        raise UnavailableError("openvino-genai is not installed")

    name = f"OpenVINO {_WEIGHTS[setup.quantization]}"
    return OfflineContestant("openvino", name, setup, _open)


def answer_once(setup: Setup, ready: Callable[[], None]) -> None:
    """Open the model, call `ready` and answer."""
    generate = _open(setup)
    ready()
    generate([[300, 301, 302]], 32)


def _open(setup: Setup) -> Generate:
    openvino = importlib.import_module("openvino")
    genai = importlib.import_module("openvino_genai")
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GIGABYTES
    scheduler.enable_prefix_caching = False
    threads = {"INFERENCE_NUM_THREADS": setup.threads}
    pipeline = genai.ContinuousBatchingPipeline(
        str(_exported(setup)), scheduler, "CPU", threads, {}
    )

    def generate(prompts: Sequence[Sequence[int]], tokens: int) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        numpy = importlib.import_module("numpy")
        inputs = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        pipeline.generate(inputs, [config] * len(prompts))

    return generate


def _exported(setup: Setup) -> Path:
    weights = _WEIGHTS[setup.quantization]
    folder = setup.model.with_name(f"{setup.model.name}-openvino-{weights}")
    if not (folder / "openvino_model.xml").is_file():
        raise UnavailableError(
            f"{folder / 'openvino_model.xml'} is missing: make it with `optimum-cli export openvino"
            f" --task text-generation-with-past --model {setup.model} --weight-format {weights}"
            f" {folder}`, or leave openvino out with --contestants"
        )

    return folder
