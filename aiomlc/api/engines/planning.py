"""Planning of an engine's memory before it is opened."""

from __future__ import annotations

__all__ = ("plan_memory",)

from aiomlc.api.session.loader import ModelPath, complete_config
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device, parse_device
from aiomlc.runtime.loading import memory_plan
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.loading.model_directory import find_model


def plan_memory(
    model: ModelPath | None = None,
    device: Device = "auto",
    *,
    mode: Mode = "local",
    engine_config: EngineConfig | None = None,
) -> MemoryPlan:
    """Return the memory plan of an engine with these arguments; `print` it as a table.

    Only the small files of the model are read; nothing is allocated, compiled or converted. An
    engine makes its plan in the same way when it is opened, from the memory that is free then, and
    has it as its `memory_plan`.

    Args:
        model: A directory, or a repository of the hub: `user/name`; None is the bundled model.
        device: The device to run on: `auto`, `cpu`, `cuda` or `opencl`.
        mode: The preset of default sizes: `local`, `interactive` or `server`.
        engine_config: Further settings. A field must not contradict an argument.

    Raises:
        InsufficientMemoryError: If the memory is too small; `plan` of the error has the details.
        ModelLoadError: If a file of the model is missing or invalid.
        BadRequestError: If an argument contradicts another, or the model is an encoder.
    """
    config = complete_config(engine_config, model=model, model_lib=None, mode=mode)
    name = parse_device(device)
    return memory_plan.plan_memory(find_model(config.model), mode, config, name)
