"""The paths and settings in the environment."""

from __future__ import annotations

import os
from pathlib import Path

MLC_CHAT_CONFIG_VERSION = "0.1.0"
MLC_TEMP_DIR = os.getenv("MLC_TEMP_DIR")
MLC_MULTI_ARCH = os.getenv("MLC_MULTI_ARCH")
MLC_JIT_POLICY = os.getenv("MLC_JIT_POLICY", "ON")
MLC_DSO_SUFFIX = os.getenv("MLC_DSO_SUFFIX", "so")
MLC_DOWNLOAD_CACHE_POLICY = os.getenv("MLC_DOWNLOAD_CACHE_POLICY", "ON")
_CACHE = Path(os.getenv("XDG_CACHE_HOME", "~/.cache")).expanduser()
MLC_LLM_HOME = Path(os.getenv("MLC_LLM_HOME", str(_CACHE / "mlc_llm")))


def _paths(name: str) -> list[Path]:
    return [Path(path) for path in os.getenv(name, "").split(os.pathsep) if path]


MLC_LLM_READONLY_WEIGHT_CACHE = _paths("MLC_LLM_READONLY_WEIGHT_CACHE")
MLC_TEST_MODEL_PATH = [
    *_paths("MLC_LLM_TEST_MODEL_PATH"),
    MLC_LLM_HOME / "model_weights" / "hf" / "mlc-ai",
    Path.cwd(),
    Path.cwd() / "dist",
]
