"""What an engine would take, before there is one."""

from __future__ import annotations

__all__ = ("plan_memory",)

from aiomlc.api.session.loader import Model, complete_config
from aiomlc.config import EngineConfig, Mode
from aiomlc.runtime.loading import memory_plan
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.loading.model_directory import find_model


def plan_memory(
    model: Model | None = None, *, mode: Mode = "local", engine_config: EngineConfig | None = None
) -> MemoryPlan:
    """Plan what an engine of these arguments takes; `print` shows it.

    The model's small files are read; nothing is allocated, compiled or converted. An engine plans
    in the same way while it opens, with the memory that is free then, and keeps the plan as
    `memory_plan`.

    Raises:
        InsufficientMemoryError: the memory does not hold it; the error's `plan` says why.
        ModelLoadError: a file or a field of the model is at fault.
        BadRequestError: an argument contradicts another, or the model is an encoder.
    """
    config = complete_config(engine_config, model=model, model_lib=None, mode=mode)
    return memory_plan.plan_memory(find_model(config.model), mode, config)
