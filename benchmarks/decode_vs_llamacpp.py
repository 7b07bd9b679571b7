"""How fast does one stream decode, beside llama.cpp on the same threads in the same minutes?

python -m benchmarks.decode_vs_llamacpp --llama-bin BUILD/bin --llama-source LLAMA.CPP
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path

from aiomlc import EngineConfig, MLCEngine
from benchmarks.interleaved import report, run_interleaved
from benchmarks.random_llama import make_gguf, make_model


def measure_aiomlc(engine: MLCEngine, tokens: int) -> float:
    """Tokens per second of one answer, from its first token to its last."""
    times: list[float] = []
    usage = None
    for chunk in engine.chat.completions.create(
        messages=[{"role": "user", "content": "def"}],
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=tokens,
        temperature=0,
    ):
        times.append(time.perf_counter())
        usage = chunk.usage or usage

    if usage is None or usage.completion_tokens < tokens:
        raise SystemExit(f"the answer ended early: {usage}")

    return (usage.completion_tokens - 1) / (times[-1] - times[0])


def measure_llamacpp(binaries: Path, gguf: Path, threads: int, tokens: int) -> float:
    """Tokens per second as llama-bench counts them, after its own warm-up."""
    command: list[str | Path] = [
        binaries / "llama-bench",
        *("-m", gguf, "-t", str(threads), "-r", "1", "-o", "json"),
        *("-p", "0", "-n", str(tokens)),
    ]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(result.stdout)[0]["avg_ts"])


def main() -> None:
    arguments = _arguments()
    model = arguments.model or arguments.work / "llama-1b"
    if arguments.model is None:
        make_model(model)
    gguf = arguments.gguf or make_gguf(
        model, arguments.llama_source, arguments.llama_bin, arguments.gguf_type
    )
    config = EngineConfig(quantization=arguments.quantization, num_threads=arguments.threads)
    with MLCEngine(str(model), mode="interactive", engine_config=config) as engine:
        measure_aiomlc(engine, 16)  # Warm-up, as llama-bench has its own.
        ours, theirs = f"aiomlc {arguments.quantization}", f"llama.cpp {arguments.gguf_type}"
        samples = run_interleaved(
            {
                ours: lambda: measure_aiomlc(engine, arguments.tokens),
                theirs: lambda: measure_llamacpp(
                    arguments.llama_bin, gguf, arguments.threads, arguments.tokens
                ),
            },
            arguments.rounds,
        )

    report(
        f"Decoding {arguments.tokens} tokens, one stream, {arguments.threads} threads",
        "tokens/s",
        samples,
        model=model.name,
        threads=arguments.threads,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--llama-bin", type=Path, required=True, help="llama-bench's folder")
    parser.add_argument("--llama-source", type=Path, help="where convert_hf_to_gguf.py is")
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="what is made")
    parser.add_argument("--model", type=Path, help="a Hugging Face directory made before")
    parser.add_argument("--gguf", type=Path, help="the same model, made before")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--gguf-type", default="q4_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.gguf is None and arguments.llama_source is None:
        parser.error("--llama-source is needed to make the GGUF file")

    arguments.work.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    main()
