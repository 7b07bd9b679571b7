"""`PopenServer`: `python -m mlc_llm serve` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from mlc_llm.serve.config import EngineConfig
from mlc_llm.serve.engine_base import _check_engine_config

_PACKAGES = Path(__file__).parents[3]
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
# The settings of `EngineConfig` that `--overrides` takes.
_OVERRIDES = (
    *("max_num_sequence", "max_total_sequence_length", "max_single_sequence_length"),
    *("prefill_chunk_size", "gpu_memory_utilization", "spec_draft_length"),
    "prefix_cache_max_num_recycling_seqs",
)


class PopenServer:
    """A server in a process of its own, for the time of a scope."""

    def __init__(
        self,
        model: str,
        device: Any = "auto",
        *,
        model_lib: str | None = None,
        mode: str = "local",
        engine_config: EngineConfig | None = None,
        enable_debug: bool = True,
        enable_tracing: bool = False,
        host: str = "127.0.0.1",
        port: int = 8082,
    ) -> None:
        self.engine_config = EngineConfig() if engine_config is None else engine_config
        _check_engine_config(model, model_lib, mode, self.engine_config)
        self.model = model
        self.device = device
        self.model_lib = model_lib
        self.mode = mode
        self.enable_debug = enable_debug
        self.enable_tracing = enable_tracing
        self.host = host
        self.port = port
        self.base_url = f"http://{host}:{port}"
        self.openai_v1_base_url = f"{self.base_url}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, extra_env: Mapping[str, str] | None = None) -> None:
        """Start the server, and wait until it answers.

        Raises:
            RuntimeError: If the process ends, or does not answer in time.
        """
        environment = {**os.environ, **(extra_env or {})}
        paths = [str(_PACKAGES), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._process = subprocess.Popen(self._command(), env=environment)
        ends = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends:
                self.terminate()
                raise RuntimeError(
                    f'The server fails to launch. Please check if "{self.model}" is a valid '
                    "model compiled by MLC LLM."
                )

            time.sleep(0.1)

    def terminate(self) -> None:
        """End the server."""
        process, self._process = self._process, None
        if process is None:
            return

        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()

    def _command(self) -> list[str]:
        config = self.engine_config.frozen()
        command = [sys.executable, "-m", "mlc_llm", "serve", self.model]
        command += ["--host", self.host, "--port", str(self.port), "--mode", self.mode]
        command += ["--speculative-mode", config.speculative_mode]
        command += ["--prefix-cache-mode", config.prefix_cache_mode]
        if self.model_lib is not None:
            command += ["--model-lib", self.model_lib]

        if config.draft_model is not None:
            command += ["--additional-models", config.draft_model[0]]

        settings = {name: getattr(config, name) for name in _OVERRIDES}
        overrides = [f"{name}={value}" for name, value in settings.items() if value is not None]
        command += ["--overrides", ";".join(overrides)] if overrides else []
        command += ["--enable-debug"] * self.enable_debug
        return command + ["--enable-tracing"] * self.enable_tracing

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.openai_v1_base_url}/models", timeout=10) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False
