"""The speed of other engines on the device of `benchmarks.gpu`, with the same random weights.

    python -m benchmarks.gpu_peers transformers DIRECTORY --device cuda --context 512 --batches 1 8

Each runs in a process of its own, and is left out where its package is not installed. Weights and
activations are bfloat16: neither has `q4f16_1`. Times are medians.
"""

from __future__ import annotations

__all__ = ("PEERS", "PeerSpeed", "measure_peer")

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, final

_ROOT: Final = Path(__file__).resolve().parents[1]
_SECONDS: Final = 3600.0
_REPETITIONS: Final = 5
_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class PeerSpeed:
    """Tokens per second of a peer, by kind of work as `benchmarks.gpu` names it."""

    peer: str
    tokens_per_second: Mapping[str, float]
    problem: str = ""  #: Why there are none.


class Peer(Protocol):
    """An engine with a model of random weights."""

    def prompt_seconds(self, prompt: Sequence[int]) -> float:
        """Return the time to the first token after a prompt."""
        ...

    def step_seconds(self, prompt: Sequence[int], batch: int) -> float:
        """Return the time of a step of `batch` sequences that each have this prompt."""
        ...


@final
class Transformers:
    """`transformers` with `torch.compile` and a static cache."""

    def __init__(self, directory: Path, device: str, context: int) -> None:
        self._torch: Any = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
        dtype = self._torch.bfloat16
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
        self._model = model.to(device).eval()
        self._forward = self._torch.compile(self._model, mode="reduce-overhead")
        self._new_cache = transformers.StaticCache
        self._device, self._length = device, context + _STEPS + 8

    def prompt_seconds(self, prompt: Sequence[int]) -> float:
        """Return the time of a pass of the prompt."""
        cache = self._cache(1)

        def run() -> None:
            with self._torch.inference_mode():  # As the pass that made its tensors.
                cache.reset()
            self._pass(self._model, [prompt], cache, 0)

        return _median(self._synchronized(run), _REPETITIONS, 1)

    def step_seconds(self, prompt: Sequence[int], batch: int) -> float:
        """Return the time of a step, compiled for this batch."""
        cache = self._cache(batch)
        self._pass(self._model, [prompt] * batch, cache, 0)
        position = len(prompt)

        def run() -> None:
            nonlocal position
            self._pass(self._forward, [[7]] * batch, cache, position)
            position += 1

        return _median(self._synchronized(run), _STEPS, 4)

    def _cache(self, batch: int) -> Any:  # noqa: ANN401 - untyped.
        return self._new_cache(config=self._model.config, max_cache_len=self._length)

    def _pass(
        self, forward: Callable[..., Any], rows: Sequence[Sequence[int]], cache: object, start: int
    ) -> None:
        torch = self._torch
        positions = torch.arange(start, start + len(rows[0]), device=self._device)
        with torch.inference_mode():
            forward(
                torch.tensor(rows, device=self._device),
                past_key_values=cache,
                position_ids=positions.expand(len(rows), -1),
                cache_position=positions,
                logits_to_keep=1,
            )

    def _synchronized(self, run: Callable[[], None]) -> Callable[[], None]:
        def wait() -> None:
            run()
            if self._device.startswith("cuda"):
                self._torch.cuda.synchronize()

        return wait


@final
class Vllm:
    """vLLM with its defaults, without its prefix cache."""

    def __init__(self, directory: Path, device: str, context: int) -> None:
        if not device.startswith("cuda"):
            raise SystemExit("vLLM is measured on CUDA only")

        vllm: Any = importlib.import_module("vllm")
        self._new_params = vllm.SamplingParams
        self._model = vllm.LLM(
            str(directory),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=context + _STEPS + 8,
            enable_prefix_caching=False,
        )

    def prompt_seconds(self, prompt: Sequence[int]) -> float:
        """Return the time of a request for one token."""
        return _median(lambda: self._generate(prompt, 1, 1), _REPETITIONS, 1)

    def step_seconds(self, prompt: Sequence[int], batch: int) -> float:
        """Return the difference between requests for one token and for many, by step."""
        first = _median(lambda: self._generate(prompt, batch, 1), 3, 1)
        many = _median(lambda: self._generate(prompt, batch, 1 + _STEPS), 3, 1)
        return (many - first) / _STEPS

    def _generate(self, prompt: Sequence[int], batch: int, num_tokens: int) -> None:
        params = self._new_params(
            max_tokens=num_tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": list(prompt)} for _ in range(batch)]
        self._model.generate(prompts, params, use_tqdm=False)


#: Peers by the names of their packages.
PEERS: Final[Mapping[str, Callable[[Path, str, int], Peer]]] = MappingProxyType(
    {"transformers": Transformers, "vllm": Vllm}
)


def measure_peer(
    name: str, directory: Path, device: str, batches: Sequence[int], context: int
) -> PeerSpeed:
    """Return the speed of a peer; its `problem` says why there is none."""
    if importlib.util.find_spec(name) is None:
        return PeerSpeed(name, {}, "is not installed")

    command = [sys.executable, "-m", __name__, name, str(directory.absolute())]
    command += ["--device", device, "--context", str(context), "--batches", *map(str, batches)]
    try:
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, check=False, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return PeerSpeed(name, {}, f"no answer within {_SECONDS:g} seconds")

    if done.returncode != 0:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        return PeerSpeed(name, {}, f"exit status {done.returncode}: {last}")

    return PeerSpeed(name, json.loads(done.stdout.splitlines()[-1]))


def _median(run: Callable[[], None], repetitions: int, warmups: int) -> float:
    seconds = []
    for _ in range(warmups + repetitions):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[warmups:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tokens per second of each kind of work as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--batches", nargs="+", type=int, required=True)
    options = parser.parse_args(arguments)
    context = options.context
    peer = PEERS[options.peer](options.directory, options.device, context)
    config = json.loads((options.directory / "config.json").read_text())
    prompt = [(7 * i * i + 3 * i) % config["vocab_size"] for i in range(context)]
    results = {f"prompt of {context}": context / peer.prompt_seconds(prompt)}
    for batch in options.batches:
        results[f"{batch} streams"] = batch / peer.step_seconds(prompt, batch)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
