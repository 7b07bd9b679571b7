"""Where the time of a step goes, by samples of `perf`: a table of the processor's time.

    python -m benchmarks.where_time_goes                        # the bundled model, one stream
    python -m benchmarks.where_time_goes --model MODEL --streams 8 --context 1024
    python -m benchmarks.where_time_goes --model MODEL --prefill 512

Without `--prefill` it records while every stream decodes; a unit of work is a step. With it, while
prompts of that many tokens are read one after the other; a unit is a prompt. An installed library
has no symbols, so this needs the one that `make dev` leaves in `build/`, or `AIOMLC_LIBRARY`.
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
_IDS = range(300, 1900)  # Plain tokens of every vocabulary that the benchmarks make.
_WARM_UP_TOKENS = 16
_MOST_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples, and the work that was done meanwhile."""

    samples: Sequence[Sample]
    units: int  #: Steps, or prompts.
    seconds: float  #: That they took by the clock.


def as_table(profile: Profile, unit: str) -> str:
    """Microseconds of the processor's time per unit by kind of work, and what is not a kernel.

    Raises:
        RuntimeError: the library has no symbols, or too little was recorded.
    """
    stepping = step_thread(profile.samples)
    own: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for sample in profile.samples:
        times = own if sample.thread == stepping else others
        times[kind_of(sample)] += sample.nanoseconds
    kinds = own + others
    if kinds[UNKNOWN] > _MOST_UNKNOWN * kinds.total():
        raise RuntimeError("the library has no symbols: run make dev, or set AIOMLC_LIBRARY")

    def per_unit(nanoseconds: int) -> str:
        return f"{nanoseconds / 1e3 / profile.units:,.1f}"

    lines = [f"| us per {unit} | the step's thread | share | other threads |", "|---|---|---|---|"]
    lines += [
        f"| {kind} | {per_unit(own[kind])} | {own[kind] / own.total():.1%} "
        f"| {per_unit(others[kind])} |"
        for kind, _ in kinds.most_common()
    ]
    lines.append(f"| all | {per_unit(own.total())} | | {per_unit(others.total())} |")
    beside, elsewhere = (
        sum(times[kind] for kind in times if kind not in KERNELS) for times in (own, others)
    )
    lines.append(
        f"\nA {unit} took {1e6 * profile.seconds / profile.units:,.1f} us. What is no kernel: "
        f"{per_unit(beside)} us on its thread, {beside / own.total():.2%} of that thread's time, "
        f"and {per_unit(elsewhere)} us on others."
    )
    return "\n".join(lines)


async def profile_decoding(arguments: argparse.Namespace, folder: Path) -> Profile:
    """Record while all streams decode, again and again until that was long enough."""
    async with _open_engine(arguments) as engine:
        random_ids = random.Random(0)
        meter = _Meter(engine, Recorder(folder), arguments.streams)
        while meter.seconds < arguments.seconds:
            meter.expect_streams()
            async with anyio.create_task_group() as tasks:
                for _ in range(arguments.streams):
                    prompt = random_ids.choices(_IDS, k=max(1, arguments.context))
                    tasks.start_soon(_read_answer, meter, prompt, arguments.tokens)

        return meter.profile()


async def profile_prompts(arguments: argparse.Namespace, folder: Path) -> Profile:
    """Record while prompts are read, until that was long enough."""
    async with _open_engine(arguments) as engine:
        random_ids = random.Random(0)
        recorder = Recorder(folder)
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
    """Records from the moment when the last stream has begun until the first one ends."""

    def __init__(self, engine: AsyncMLCEngine, recorder: Recorder, streams: int) -> None:
        self.engine = engine
        self.seconds = 0.0
        self._recorder = recorder
        self._streams = streams
        self._steps = 0
        self._waiting = 0
        self._overlap = True
        self._before: DecodeSteps | None = None

    def expect_streams(self) -> None:
        """Raises `RuntimeError` where the last ones never ran all at once."""
        if not self._overlap:
            raise RuntimeError("a stream ended before the last one had begun: more --tokens")

        self._waiting = self._streams

    def begun(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._recorder.start()
            self._before = self._decoded()

    def ended(self) -> None:
        self._overlap = self._overlap and self._waiting == 0
        if self._before is not None:
            after = self._decoded()
            self._recorder.pause()
            self._steps += after.num_steps - self._before.num_steps
            self.seconds += after.seconds - self._before.seconds
            self._before = None

    def profile(self) -> Profile:
        return Profile(self._recorder.finish(), self._steps, self.seconds)

    def _decoded(self) -> DecodeSteps:
        return self.engine.statistics().decode_steps.get(self._streams, DecodeSteps(0, 0.0))


def _open_engine(arguments: argparse.Namespace) -> AsyncMLCEngine:
    config = EngineConfig(
        quantization=arguments.quantization if arguments.model else None,
        num_threads=arguments.threads,
        prefix_cache_mode="disable",
    )
    return AsyncMLCEngine(arguments.model, engine_config=config)


async def _read_answer(meter: _Meter, prompt: list[int], tokens: int) -> None:
    stream = await meter.engine.completions.create(
        prompt=prompt, max_tokens=tokens, ignore_eos=True, temperature=0, stream=True
    )
    async with stream:
        count = itertools.count(1)
        async for _ in stream:
            if next(count) == _WARM_UP_TOKENS:
                meter.begun()
    meter.ended()


def main() -> None:
    arguments = _arguments()
    _use_symbols()
    with tempfile.TemporaryDirectory() as folder:
        measure = profile_prompts if arguments.prefill else profile_decoding
        try:
            profile = anyio.run(measure, arguments, Path(folder))
            print(as_table(profile, "prompt" if arguments.prefill else "step"))
        except RuntimeError as error:
            raise SystemExit(f"error: {error}") from error


def _use_symbols() -> None:
    libraries = _ROOT.glob("build/py3-*/libaiomlc.so")
    newest = max(libraries, key=lambda path: path.stat().st_mtime, default=None)
    if newest is not None:
        os.environ.setdefault("AIOMLC_LIBRARY", str(newest))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="the bundled one otherwise")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--context", type=int, default=1, help="tokens of each stream's prompt")
    parser.add_argument("--tokens", type=int, default=512, help="of each stream's answer")
    parser.add_argument("--prefill", type=int, metavar="TOKENS", help="read prompts instead")
    parser.add_argument("--seconds", type=float, default=5.0, help="to record, at least")
    return parser.parse_args()


if __name__ == "__main__":
    main()
