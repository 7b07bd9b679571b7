"""The command `aiomlc bench`."""

from __future__ import annotations

__all__ = ("bench",)

import json
import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from aiomlc.cli.options.common import Debug, Model, NamedModel, Preset, one_model
from aiomlc.cli.options.overrides import ModelOptions
from aiomlc.cli.options.records import takes_options
from aiomlc.cli.terminal.failures import CommandError, report_failures
from aiomlc.cli.terminal.tables import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiomlc.cli.jobs.bench_load import Load, LoadResult
    from aiomlc.config import EngineConfig
    from aiomlc.runtime.loading.progress import LoadProgress

_FAILED = 1


@takes_options
def bench(  # noqa: PLR0913 - one parameter per option.
    model: Model = None,
    *,
    named_model: NamedModel = None,
    url: Annotated[
        str | None,
        typer.Option(help="A server, such as http://127.0.0.1:8000/v1, in place of the library."),
    ] = None,
    api_key: Annotated[
        str, typer.Option(help="The key of the server.", envvar="OPENAI_API_KEY")
    ] = "none",
    number: Annotated[int, typer.Option(help="Requests.", min=1)] = 32,
    rate: Annotated[
        float,
        typer.Option(help="Requests per second, at random moments; 0: all at once.", min=0),
    ] = 0.0,
    concurrency: Annotated[int, typer.Option(help="Requests at once.", min=1)] = 256,
    prompt_words: Annotated[int, typer.Option(help="Words of a prompt.", min=1)] = 64,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer.", min=1)] = 64,
    fixed_length: Annotated[
        bool, typer.Option(help="Use min_tokens too, which aiomlc and vLLM understand.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the prompts and the moments.")] = 0,
    engine: ModelOptions,
    mode: Preset = "local",
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Measure latencies under a load.

    Of the library, or of a server.
    """
    with report_failures(debug=debug):
        import anyio

        from aiomlc.cli.jobs.bench_load import Load

        load = Load(
            number=number,
            rate=rate or math.inf,
            concurrency=concurrency,
            prompt_words=prompt_words,
            max_tokens=max_tokens,
            fixed_length=fixed_length,
            seed=seed,
        )
        model = one_model(model, named_model)
        if url is not None:
            _check_url(url)
            result = anyio.run(_load_server, url, api_key, model, load)
        else:
            config = engine.config(mode=mode)
            result = anyio.run(_load_library, model, engine.device, config, load)

        _print(result, as_json=as_json)
        if result.errors:
            raise typer.Exit(_FAILED)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.netloc != ""
    except ValueError:  # For instance, a bracket of an IPv6 address that is not closed.
        is_valid = False

    if not is_valid:
        raise CommandError(f"--url must be like http://127.0.0.1:8000/v1, got {url!r}")


async def _load_server(url: str, api_key: str, model: str | None, load: Load) -> LoadResult:
    try:
        import openai
    except ModuleNotFoundError as error:
        if error.name != "openai":
            raise

        raise CommandError("the package openai is missing: pip install openai") from error

    from aiomlc.cli.jobs.bench_load import run_load

    async with openai.AsyncOpenAI(base_url=url, api_key=api_key, max_retries=0) as client:
        create = partial(client.chat.completions.create, model=model or "default")
        return await run_load(create, load, (openai.OpenAIError,))


async def _load_library(
    model: str | None, device: str, config: EngineConfig, load: Load
) -> LoadResult:
    from aiomlc.api.engines.async_engine import AsyncMLCEngine
    from aiomlc.cli.jobs.bench_load import run_load
    from aiomlc.cli.terminal.progress import with_progress
    from aiomlc.errors import AiomlcError

    async def open_engine(on_progress: Callable[[LoadProgress], None]) -> AsyncMLCEngine:
        engine = AsyncMLCEngine(
            model,
            device,
            mode=config.mode or "local",
            engine_config=config,
            on_progress=on_progress,
        )
        await engine.metrics()
        return engine

    engine = await with_progress(sys.stderr, open_engine)
    try:
        return await run_load(engine.chat.completions.create, load, (AiomlcError,))
    finally:
        engine.terminate()


def _print(result: LoadResult, *, as_json: bool) -> None:
    summary = result.summary()
    typer.echo(json.dumps(summary, indent=2) if as_json else _to_text(summary))
    if result.errors:
        typer.echo(f"{len(result.errors)} failed, the first by {result.errors[0]}", err=True)


def _to_text(summary: dict[str, Any]) -> str:
    times = [
        (name.removesuffix("_ms").replace("_", " "), *(_milliseconds(x) for x in value.values()))
        for name, value in summary.items()
        if isinstance(value, dict)
    ]
    rates = (
        f"{summary['completed']:,} requests in {summary['seconds']:.1f} s: "
        f"{summary['requests_per_second']:.2f} requests/s, "
        f"{summary['prompt_tokens_per_second']:,.0f} prompt tokens/s, "
        f"{summary['completion_tokens_per_second']:,.0f} tokens/s"
    )
    return f"{rates}\n\n{format_table([('', 'p50', 'p90', 'p99'), *times])}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
