"""CPU time of a step by kind of work, sampled with `perf`.

    python -m benchmarks.profile_steps                        # the bundled model, one stream
    python -m benchmarks.profile_steps --model MODEL --streams 8 --context 1024
    python -m benchmarks.profile_steps --model MODEL --prefill 512

By default the benchmark records while all streams decode, and the table gives times per step. With
`--prefill` it records while prompts of that many tokens are read one after the other, and gives
times per prompt. An installed library has no symbols, so the benchmark uses the library that
`make dev` leaves in `build/`, or `AIOMLC_LIBRARY`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.runtime.engine.statistics import DecodeSteps
from benchmarks.perf_record import KERNELS, UNKNOWN, Recorder, Sample, kind_of, step_thread

_ROOT = Path(__file__).parent.parent
_IDS = range(300, 1900)  # Plain text tokens in every vocabulary of the benchmarks.
_WARM_UP_TOKENS = 16
_MAX_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples, and the work that was done while they were recorded."""

    samples: Sequence[Sample]
    units: int  #: Steps, or prompts.
    seconds: float  #: Elapsed time of the units.


def as_table(profile: Profile, unit: str) -> str:
    """Return a table of the CPU microseconds per unit by kind of work, with the non-kernel total.

    Raises:
        RuntimeError: If the library has no symbols, or too few samples were recorded.
    """
    step_thread_id = step_thread(profile.samples)
    on_step_thread: Counter[str] = Counter()
    on_others: Counter[str] = Counter()
    for sample in profile.samples:
        times = on_step_thread if sample.thread == step_thread_id else on_others
        times[kind_of(sample)] += sample.nanoseconds
    kinds = on_step_thread + on_others
    if kinds[UNKNOWN] > _MAX_UNKNOWN * kinds.total():
        raise RuntimeError("the library has no symbols: run make dev, or set AIOMLC_LIBRARY")

    def per_unit(nanoseconds: int) -> str:
        return f"{nanoseconds / 1e3 / profile.units:,.1f}"

    total = on_step_thread.total()
    lines = [f"| us per {unit} | step thread | percent | other threads |", "|---|---|---|---|"]
    lines += [
        f"| {kind} | {per_unit(on_step_thread[kind])} | {on_step_thread[kind] / total:.1%} "
        f"| {per_unit(on_others[kind])} |"
        for kind, _ in kinds.most_common()
    ]
    lines.append(f"| total | {per_unit(total)} | | {per_unit(on_others.total())} |")
    step_overhead, other_overhead = (
        sum(times[kind] for kind in times if kind not in KERNELS)
        for times in (on_step_thread, on_others)
    )
    lines.append(
        f"\nA {unit} took {1e6 * profile.seconds / profile.units:,.1f} us. Outside kernels: "
        f"{per_unit(step_overhead)} us on the step thread ({step_overhead / total:.2%} of its "
        f"time) and {per_unit(other_overhead)} us on others."
    )
    return "\n".join(lines)


async def profile_decoding(arguments: argparse.Namespace, directory: Path) -> Profile:
    """Record while all streams decode, repeatedly until `--seconds` are recorded."""
    async with _open_engine(arguments) as engine:
        random_ids = random.Random(0)
        meter = _Meter(engine, Recorder(directory), arguments.streams)
        while meter.seconds < arguments.seconds:
            meter.expect_streams()
            async with anyio.create_task_group() as tasks:
                for _ in range(arguments.streams):
                    prompt = random_ids.choices(_IDS, k=max(1, arguments.context))
                    tasks.start_soon(_read_stream, meter, prompt, arguments.tokens)

        return meter.profile()


async def profile_prompts(arguments: argparse.Namespace, directory: Path) -> Profile:
    """Record while prompts are read, until `--seconds` are recorded."""
    async with _open_engine(arguments) as engine:
        random_ids = random.Random(0)
        recorder = Recorder(directory)
        before, seconds, prompts = engine.statistics().prefill_seconds, 0.0, 0
        recorder.start()
        while seconds < arguments.seconds:
            prompt = random_ids.choices(_IDS, k=arguments.prefill)
            await engine.completions.create(prompt=prompt, max_tokens=1)
            prompts += 1
            seconds = engine.statistics().prefill_seconds - before
        recorder.pause()
        return Profile(recorder.finish(), prompts, seconds)


class _Meter:
    """Recorder of the interval from the last stream's start to the first stream's end."""

    def __init__(self, engine: AsyncMLCEngine, recorder: Recorder, streams: int) -> None:
        self.engine = engine
        self.seconds = 0.0
        self._recorder = recorder
        self._streams = streams
        self._steps = 0
        self._num_not_started = 0
        self._all_overlapped = True
        self._before: DecodeSteps | None = None

    def expect_streams(self) -> None:
        """Prepare for the next streams.

        Raises:
            RuntimeError: If the previous streams never ran at the same time.
        """
        if not self._all_overlapped:
            raise RuntimeError("a stream ended before the last one started: increase --tokens")

        self._num_not_started = self._streams

    def on_start(self) -> None:
        self._num_not_started -= 1
        if self._num_not_started == 0:
            self._recorder.start()
            self._before = self._decode_steps()

    def on_end(self) -> None:
        self._all_overlapped = self._all_overlapped and self._num_not_started == 0
        if self._before is not None:
            after = self._decode_steps()
            self._recorder.pause()
            self._steps += after.num_steps - self._before.num_steps
            self.seconds += after.seconds - self._before.seconds
            self._before = None

    def profile(self) -> Profile:
        return Profile(self._recorder.finish(), self._steps, self.seconds)

    def _decode_steps(self) -> DecodeSteps:
        return self.engine.statistics().decode_steps.get(self._streams, DecodeSteps(0, 0.0))


def _open_engine(arguments: argparse.Namespace) -> AsyncMLCEngine:
    config = EngineConfig(
        quantization=(arguments.quantization or None) if arguments.model else None,
        num_threads=arguments.threads,
        prefix_cache_mode="disable",
    )
    return AsyncMLCEngine(arguments.model, engine_config=config)


async def _read_stream(meter: _Meter, prompt: list[int], tokens: int) -> None:
    stream = await meter.engine.completions.create(
        prompt=prompt, max_tokens=tokens, ignore_eos=True, temperature=0, stream=True
    )
    async with stream:
        count = itertools.count(1)
        async for _ in stream:
            if next(count) == _WARM_UP_TOKENS:
                meter.on_start()
    meter.on_end()


def main() -> None:
    arguments = _parse_arguments()
    _use_library_with_symbols()
    with tempfile.TemporaryDirectory() as directory:
        measure = profile_prompts if arguments.prefill else profile_decoding
        try:
            profile = anyio.run(measure, arguments, Path(directory))
            print(as_table(profile, "prompt" if arguments.prefill else "step"))
        except RuntimeError as error:
            raise SystemExit(f"error: {error}") from error


def _use_library_with_symbols() -> None:
    libraries = _ROOT.glob("build/py3-*/libaiomlc.so")
    newest = max(libraries, key=lambda path: path.stat().st_mtime, default=None)
    if newest is not None:
        os.environ.setdefault("AIOMLC_LIBRARY", str(newest))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="model directory (default: the bundled model)")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--context", type=int, default=1, help="prompt tokens per stream")
    parser.add_argument("--tokens", type=int, default=512, help="completion tokens per stream")
    parser.add_argument(
        "--prefill", type=int, metavar="TOKENS", help="record prefills of this length"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="minimum time to record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
