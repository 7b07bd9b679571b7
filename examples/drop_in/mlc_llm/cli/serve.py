"""`python -m mlc_llm serve`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from aiomlc.cli.options.overrides import parse_overrides
from mlc_llm.interface.serve import serve

# Settings of --overrides that have another name in `EngineConfig`.
_OVERRIDES = {
    "context_window_size": "max_single_sequence_length",
    "max_total_seq_length": "max_total_sequence_length",
}


def main(argv: Sequence[str]) -> None:
    """Serve a model."""
    parser = argparse.ArgumentParser("mlc_llm serve", allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model-lib")
    parser.add_argument("--mode", choices=["local", "interactive", "server"], default="local")
    parser.add_argument("--enable-debug", action="store_true")
    parser.add_argument("--additional-models", nargs="*", default=[])
    parser.add_argument("--embedding-model")
    parser.add_argument("--embedding-model-lib")
    parser.add_argument("--speculative-mode", default="disable")
    parser.add_argument("--prefix-cache-mode", default="radix")
    parser.add_argument("--prefill-mode", default="hybrid")
    parser.add_argument("--overrides", default="")
    parser.add_argument("--enable-tracing", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--allow-credentials", action="store_true")
    for name in ("--allow-origins", "--allow-methods", "--allow-headers"):
        parser.add_argument(name, type=json.loads, default=["*"])
    parser.add_argument("--api-key")
    options: dict[str, Any] = vars(parser.parse_args(argv))
    options["additional_models"] = [
        tuple(model.split(",", 1)) if "," in model else model
        for model in options["additional_models"]
    ]
    for name, value in parse_overrides(options.pop("overrides")).items():
        options[_OVERRIDES.get(name, name)] = _number(value)

    serve(**options)


def _number(value: Any) -> Any:
    try:
        return value if isinstance(value, int) else float(value)
    except ValueError:
        return value
