"""MLC LLM's JSON functions as TVM-FFI functions, for other languages in the same process.

Importing this module registers the global function `aiomlc.json_ffi.create`, which has no
arguments and returns a map from names to functions, also under MLC LLM's name.
"""

from __future__ import annotations

__all__ = ("CREATE", "MLC_CREATE", "JSONFunctions", "create_functions")

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

from aiomlc.api.json_ffi.service import JSONService
from aiomlc.api.session.loader import Loader
from aiomlc.api.streams.portal import EnginePortal
from aiomlc.config import EngineConfig
from aiomlc.devices import device_of_type
from aiomlc.errors import EngineClosedError, EngineError
from aiomlc.runtime.native.library import has_global, register_global
from aiomlc.validation.arguments import wrong_type

CREATE = "aiomlc.json_ffi.create"
MLC_CREATE = "mlc.json_ffi.CreateJSONFFIEngine"
_T = TypeVar("_T")


@final
class JSONFunctions:
    """One engine as functions of strings and numbers, which any thread may call.

    The engine runs in its own thread. The caller provides threads for two loops:
    `run_background_stream_back_loop` calls the callback with the chunks, and
    `run_background_loop` waits for `exit_background_loop` and then closes the engine. The loops may
    be started before `init_background_engine`, as MLC LLM's clients do: they wait for it.
    """

    def __init__(self, loader: Loader | None = None) -> None:
        self._loader = loader
        self._service: JSONService | None = None
        self._portal: EnginePortal | None = None
        self._callback: Callable[[str], object] | None = None
        self._started_or_exited = threading.Event()
        self._has_exited = False

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by MLC LLM's names."""
        functions: tuple[Callable[..., Any], ...] = (
            self.init_background_engine,
            self.reload,
            self.unload,
            self.reset,
            self.chat_completion,
            self.abort,
            self.get_last_error,
            self.run_background_loop,
            self.run_background_stream_back_loop,
            self.exit_background_loop,
        )
        return {function.__name__: function for function in functions}

    def init_background_engine(
        self, device_type: int, device_id: int, callback: Callable[[str], object]
    ) -> None:
        """Start the engine, without a model.

        Args:
            device_type: DLPack's device type, such as 1, the CPU.
            device_id: The index of the device.
            callback: Receives JSON lists of chunks, in the thread that runs
                `run_background_stream_back_loop`.

        Raises:
            BadRequestError: If the device is unknown or absent, or the callback is not callable.
            EngineError: If the engine was started before.
        """
        device = device_of_type(device_type, device_id)
        if not callable(callback):
            raise wrong_type("callback", callback, "a function")

        if self._service is not None:
            raise EngineError("the engine was already started")

        if self._has_exited:
            raise EngineClosedError

        self._callback = callback
        self._service = JSONService(device, self._loader)
        self._portal = EnginePortal(self._service)
        self._started_or_exited.set()

    def reload(self, engine_config_json: str) -> None:
        """Load the model of a JSON `EngineConfig` in place of the loaded model. Blocks.

        Raises:
            BadRequestError: If the configuration is invalid; the loaded model stays.
            ModelLoadError: If the model cannot be opened; no model is loaded then.
        """
        config = EngineConfig.from_json(engine_config_json)
        self._call(self._open_service().load, config)

    def unload(self) -> None:
        """Abort all requests and free the model."""
        self._call(self._open_service().unload)

    def reset(self) -> None:
        """Abort all requests, clear the prefix cache and reset the metrics.

        Raises:
            EngineClosedError: If no model is loaded.
        """
        self._call(self._open_service().reset)

    def chat_completion(self, request_json: str, request_id: str) -> bool:
        """Submit a JSON chat request; return False if it is rejected.

        The chunks of the request, or of its error, go to the callback.
        """
        return self._call(self._open_service().submit, request_json, request_id)

    def abort(self, request_id: str) -> None:
        """Abort a request, whose chunks end with the error. Unknown ids are ignored."""
        self._call(self._open_service().abort, request_id)

    def get_last_error(self) -> str:
        """Return why `chat_completion` last returned False, or "" if it never did."""
        return self._open_service().last_error

    def run_background_loop(self) -> None:
        """Wait for `exit_background_loop`, then end the engine's thread and free the model."""
        self._started_or_exited.wait()
        service = self._service
        if service is not None and self._portal is not None:
            self._portal.call_if_open(service.wait_stopped)
            self._portal.close()

    def run_background_stream_back_loop(self) -> None:
        """Call the callback until the engine has exited and all chunks are delivered. Blocks.

        An error of the callback ends the loop and is raised; calling the function again continues
        with the next chunks.
        """
        self._started_or_exited.wait()
        service = self._service
        if service is None:
            return

        assert self._callback is not None, "set together with the service"
        while text := self._take(service):
            self._callback(text)

    def exit_background_loop(self) -> None:
        """Abort all requests and let both loops return, without waiting for them. Idempotent."""
        self._has_exited = True
        self._started_or_exited.set()
        if self._service is not None and self._portal is not None:
            self._portal.call_if_open(self._service.stop)

    def _take(self, service: JSONService) -> str:
        try:
            return self._call(service.take)
        except EngineClosedError:
            return service.take_nowait()

    def _call(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        assert self._portal is not None, "set together with the service"
        return self._portal.call(function, *args)

    def _open_service(self) -> JSONService:
        if self._service is None:
            raise EngineClosedError("the engine is not started: call init_background_engine")

        return self._service


def create_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of a new engine by name."""
    return JSONFunctions().table()


register_global(CREATE, create_functions)
if not has_global(MLC_CREATE):  # Which MLC LLM's own library may have registered.
    register_global(MLC_CREATE, create_functions)
