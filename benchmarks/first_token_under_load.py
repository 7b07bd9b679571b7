"""Time to the first token of a long prompt that arrives while a server's streams decode.

    python -m benchmarks.first_token_under_load --model build/llama_1b --length 4000 --streams 8 \\
        [--llama-cpp llama.cpp/build/bin --llama-cpp-source llama.cpp] [--vllm-python PATH]

aiomlc, llama.cpp's server and vLLM's get the same token ids as a prompt, first alone, then while
the streams decode; what the streams lose meanwhile is measured, too. All servers run, and take
turns: an idle one uses no processor. No prompt is asked twice, so no prefix cache has it.
`--tiny` tries it out.
"""

from __future__ import annotations

__all__ = ("Figures", "StreamClock", "main")

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import Any, final

import anyio
import httpx2

from benchmarks.interleaved import processor
from benchmarks.peer_servers import ServerSizes, add_server_options, servers
from benchmarks.random_llama import TINY, make_model
from benchmarks.server_process import running

_IDS = range(300, 1900)  # Plain text tokens in every vocabulary of the benchmarks.
_STREAM_PROMPT = 64
_SETTLE_SECONDS = 1.0  # In which a server ends the streams that were left.


@dataclass(frozen=True, slots=True)
class Figures:
    """What a server gave in a round."""

    alone: float  #: Seconds to the first token of the long prompt, without other streams.
    loaded: float  #: The same while the streams decode.
    rate_before: float  #: Tokens per second of all streams before the prompt arrives.
    rate_during: float  #: The same until the prompt has its first token.
    pause_before: float  #: The longest time in seconds between two tokens of a stream.
    pause_during: float


@final
@dataclass(slots=True)
class StreamClock:
    """Counts the tokens of streams, and their longest pause, in an interval."""

    start: float
    count: int = 0
    longest: float = 0.0
    last: dict[int, float] = field(default_factory=dict)  #: By stream: of its last token.

    def add(self, stream: int, moment: float) -> None:
        """Note a token of a stream."""
        self.longest = max(self.longest, moment - self.last.get(stream, moment))
        self.last[stream] = moment
        self.count += 1

    def take(self, moment: float) -> tuple[float, float]:
        """Return tokens per second and the longest pause since the last call, and begin again.

        A stream that waits at `moment` counts with the pause until then.
        """
        waiting = max((moment - last for last in self.last.values()), default=0.0)
        rate, longest = self.count / (moment - self.start), max(self.longest, waiting)
        self.start, self.count, self.longest = moment, 0, 0.0
        return rate, longest


def main() -> None:
    """Measure the servers in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_server_options(parser)
    parser.add_argument("--length", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--context", type=int, default=8192, help="tokens of a sequence")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the streams alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a small model, made if it is missing")
    arguments = parser.parse_args()
    if arguments.tiny:
        make_model(arguments.model, TINY)

    sizes = ServerSizes(arguments.context, arguments.streams + 1)
    figures: dict[str, list[Figures]] = {}
    with ExitStack() as stack:
        ports = {
            server.name: stack.enter_context(running(server))
            for server in servers(arguments, sizes)
        }
        for number in range(-1, arguments.rounds):  # The first round warms all.
            for name, port in ports.items():
                result = anyio.run(_measure, port, arguments, number)
                if number >= 0:
                    figures.setdefault(name, []).append(result)

    _print_table(figures, arguments)


async def _measure(port: int, arguments: argparse.Namespace, number: int) -> Figures:
    rng = random.Random(number)
    url = f"http://127.0.0.1:{port}/v1"
    async with httpx2.AsyncClient(base_url=url, timeout=None) as client:
        alone = await _first_token(client, _prompt(rng, arguments.length))
        results: list[Figures] = []
        async with anyio.create_task_group() as tasks:
            clock = StreamClock(time.perf_counter())
            for stream in range(arguments.streams):
                body = _body(_prompt(rng, _STREAM_PROMPT), arguments.context - _STREAM_PROMPT)
                await tasks.start(_read_stream, client, body, stream, clock)
            clock.take(time.perf_counter())
            await anyio.sleep(arguments.seconds)
            rate, pause = clock.take(time.perf_counter())
            loaded = await _first_token(client, _prompt(rng, arguments.length))
            rate_during, pause_during = clock.take(time.perf_counter())
            results.append(Figures(alone, loaded, rate, rate_during, pause, pause_during))
            tasks.cancel_scope.cancel()

    await anyio.sleep(_SETTLE_SECONDS)
    return results[0]


def _prompt(rng: random.Random, length: int) -> list[int]:
    return rng.choices(_IDS, k=length)


def _body(prompt: Sequence[int], tokens: int) -> dict[str, Any]:
    return {
        "model": "model",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }


async def _first_token(client: httpx2.AsyncClient, prompt: Sequence[int]) -> float:
    start = time.perf_counter()
    moments: list[float] = []
    await _read_tokens(client, _body(prompt, 1), moments.append)
    if not moments:
        raise RuntimeError("the long prompt had no token")

    return moments[0] - start


async def _read_stream(
    client: httpx2.AsyncClient,
    body: Mapping[str, Any],
    stream: int,
    clock: StreamClock,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    """Read until the scope is left; a stream that ends by itself is an error."""

    def on_token(moment: float) -> None:
        if stream not in clock.last:
            task_status.started()
        clock.add(stream, moment)

    await _read_tokens(client, body, on_token)
    raise RuntimeError(f"stream {stream} ended before the prompt had its token; raise --context")


async def _read_tokens(
    client: httpx2.AsyncClient, body: Mapping[str, Any], on_token: Callable[[float], object]
) -> None:
    """Send a request, and call `on_token` with the moment of each token."""
    async with client.stream("POST", "/completions", json=body) as response:
        if not response.is_success:
            raise RuntimeError(f"the server answered {(await response.aread()).decode()}")

        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                on_token(time.perf_counter())


def _print_table(figures: Mapping[str, Sequence[Figures]], arguments: argparse.Namespace) -> None:
    heads = (
        *("first token alone, s", f"beside {arguments.streams} streams, s"),
        *("streams before, tokens/s", "meanwhile", "longest pause before, ms", "meanwhile"),
    )
    print(f"{processor()}; a prompt of {arguments.length}, medians of {arguments.rounds} rounds\n")
    print(f"| | {' | '.join(heads)} |\n|---{'|---' * len(heads)}|")
    for name, rounds in figures.items():
        medians = {
            entry.name: statistics.median(getattr(row, entry.name) for row in rounds)
            for entry in fields(Figures)
        }
        seconds = " | ".join(f"{medians[key]:.2f}" for key in ("alone", "loaded"))
        rates = " | ".join(f"{medians[key]:.1f}" for key in ("rate_before", "rate_during"))
        pauses = " | ".join(f"{1e3 * medians[key]:.0f}" for key in ("pause_before", "pause_during"))
        print(f"| {name} | {seconds} | {rates} | {pauses} |")


if __name__ == "__main__":
    main()
