"""Acceptance of a GPU: logits of every family, and the speed of decoding and of prompts.

    python -m benchmarks.gpu                                   # the first NVIDIA GPU, Llama 3.2 1B
    python -m benchmarks.gpu --model "Llama 3.1 8B" --json gpu.json
    python -m benchmarks.gpu --device opencl --model tiny      # Intel's driver for processors

Weights are random. Without a device of the kind, it says why and ends with 3. It ends with 1 if the
logits of a tiny model differ from those of transformers, or the device does not compute them. The
share of the bandwidth counts the weights and the keys and values that a step must read. Beside it
stand transformers with `torch.compile` and vLLM, where they are installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from aiomlc import EngineConfig
from aiomlc.devices import AUTO, device_name
from aiomlc.errors import BadRequestError
from aiomlc.models import DecoderConfig
from aiomlc.runtime.loading.device import find_device
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import OpenedModel
from benchmarks.gpu_parity import CASES, Parity, check_parity
from benchmarks.gpu_peers import PEERS, PeerSpeed, measure_peer
from benchmarks.model_shapes import SHAPES
from benchmarks.native_model import open_native_model
from benchmarks.random_llama import TINY
from benchmarks.random_model import write_random_model

_NO_DEVICE: Final = 3
_TINY: Final = SHAPES["Llama 3.2 1B"] | {
    "vocab_size": TINY.vocabulary,
    "hidden_size": TINY.hidden,
    "intermediate_size": TINY.intermediate,
    "num_hidden_layers": TINY.layers,
    "num_attention_heads": TINY.heads,
    "num_key_value_heads": TINY.kv_heads,
}
_MODELS: Final = {"tiny": _TINY, **SHAPES}
#: Of memory in GB/s and of dense bf16 in TFLOPS, by parts of a GPU's name.
_PEAKS: Final = {
    "H200": (4800.0, 989.0),
    "H100": (3350.0, 989.0),
    "A100": (2039.0, 312.0),
    "L40S": (864.0, 362.0),
    "L4": (300.0, 121.0),
    "4090": (1008.0, 165.0),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second of a kind of step."""

    work: str
    tokens_per_second: float
    bandwidth_share: float | None = None  #: Of the memory's.
    compute_share: float | None = None  #: Of dense bf16.


def measure_speed(
    directory: Path, device: str, quantization: str, batches: Sequence[int], context: int
) -> Iterator[Speed]:
    """Yield the speed of a prompt and of decoding in batches, after `context` tokens each."""
    facts = ModelFacts(find_model(directory), quantization)
    opened = _open(
        directory, device, quantization, max_num_sequence=max(batches), prefill_chunk_size=context
    )
    prompt = [(7 * i * i + 3 * i) % opened.native.vocab_size for i in range(context)]
    bandwidth, flops = _peaks(str(find_device(device)))
    seconds = _prefill_seconds(opened, prompt)
    config = facts.config
    assert isinstance(config, DecoderConfig)
    elements = sum(int(np.prod(p.shape)) for p in facts.parameters if p.kind == "matrix")
    embedding = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    computed = 2 * (elements - embedding) * context / seconds / 1e12
    yield Speed(f"prompt of {context}", context / seconds, None, _share(computed, flops))
    weights = opened.plan.weight_bytes * (1 - embedding / elements)
    for batch in batches:
        seconds = _decode_seconds(opened, prompt, batch)
        read = weights + batch * context * opened.plan.kv_bytes_per_token
        share = _share(read / seconds / 1e9, bandwidth)
        yield Speed(f"{batch} streams", batch / seconds, share)


def _open(directory: Path, device: str, quantization: str, **options: Any) -> OpenedModel:  # noqa: ANN401
    config = EngineConfig(quantization=quantization, **options)
    return open_native_model(directory, config, device)


def _prefill_seconds(opened: OpenedModel, prompt: Sequence[int], repetitions: int = 5) -> float:
    model, seconds = opened.native, []
    for _ in range(repetitions + 1):
        model.add_sequence(0)
        start = time.perf_counter()
        model.forward([(0, prompt)])
        seconds.append(time.perf_counter() - start)
        model.remove_sequence(0)
    return statistics.median(seconds[1:])


def _decode_seconds(
    opened: OpenedModel, prompt: Sequence[int], batch: int, steps: int = 20
) -> float:
    model, seconds = opened.native, []
    for sequence_id in range(batch):
        model.add_sequence(sequence_id)
        model.forward([(sequence_id, prompt)])
    for step in range(steps + 3):
        start = time.perf_counter()
        model.forward([(sequence_id, [step]) for sequence_id in range(batch)])
        seconds.append(time.perf_counter() - start)
    for sequence_id in range(batch):
        model.remove_sequence(sequence_id)
    return statistics.median(seconds[3:])


def _peaks(device: str) -> tuple[float | None, float | None]:
    return next((peaks for name, peaks in _PEAKS.items() if name in device), (None, None))


def _share(value: float, peak: float | None) -> float | None:
    return None if peak is None else value / peak


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", choices=_MODELS, default="Llama 3.2 1B")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--context", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="of the models")
    parser.add_argument("--no-parity", action="store_true", help="measure the speed only")
    parser.add_argument("--no-speed", action="store_true", help="compare the logits only")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args(arguments)
    if options.device == AUTO:
        parser.error("--device must name the device to measure, such as cuda or opencl:1")

    try:
        device = find_device(options.device)
    except BadRequestError as error:
        print(error, file=sys.stderr)
        return _NO_DEVICE

    print(f"{device}: {options.model}, {options.quantization}\n", flush=True)
    parities = [] if options.no_parity else list(_printed_parities(options.device))
    speeds, peers = ([], []) if options.no_speed else _print_speeds(options)
    if options.json is not None:
        results = {
            "device": str(device),
            "model": options.model,
            "quantization": options.quantization,
            "parity": [asdict(parity) for parity in parities],
            "speed": [asdict(speed) for speed in speeds],
            "peers": [asdict(peer) for peer in peers],
        }
        options.json.write_text(json.dumps(results, indent=1))
    return int(any(parity.is_wrong for parity in parities))


def _printed_parities(device: str) -> Iterator[Parity]:
    print("| tiny model | weights | largest error of logits |\n|---|---|---|")
    wrong = 0
    for parity in check_parity(device):
        error = parity.problem if parity.error is None else f"{parity.error:.1e}"
        mark = " **wrong**" if parity.is_wrong else ""
        print(f"| {parity.model} | {parity.quantization} | {error}{mark} |", flush=True)
        wrong += parity.is_wrong
        yield parity
    print(f"\n{len(CASES) - wrong} of {len(CASES)} are right.", flush=True)


def _print_speeds(options: argparse.Namespace) -> tuple[list[Speed], list[PeerSpeed]]:
    directory = options.work / f"random {options.model}"
    write_random_model(directory, _MODELS[options.model])
    kind = "cuda" if device_name(options.device) == "cuda" else "cpu"
    peers = [
        measure_peer(name, directory, kind, options.batches, options.context)
        for name in options.peers
    ]
    for peer in peers:
        if peer.problem:
            print(f"{peer.peer}: {peer.problem}")
    measured = [peer for peer in peers if not peer.problem]
    names = "".join(f" {peer.peer} bf16, tokens/s |" for peer in measured)
    print(f"\n| work | tokens/s | of bandwidth | of bf16 |{names}")
    print("|---|---|---|---|" + "---|" * len(measured))
    speeds = []
    for speed in measure_speed(
        directory, options.device, options.quantization, options.batches, options.context
    ):
        shares = (
            "-" if share is None else f"{share:.0%}"
            for share in (speed.bandwidth_share, speed.compute_share)
        )
        others = (f"{peer.tokens_per_second[speed.work]:.1f}" for peer in measured)
        cells = (speed.work, f"{speed.tokens_per_second:.1f}", *shares, *others)
        print(f"| {' | '.join(cells)} |", flush=True)
        speeds.append(speed)
    return speeds, peers


if __name__ == "__main__":
    sys.exit(main())
