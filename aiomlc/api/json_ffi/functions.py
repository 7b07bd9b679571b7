"""Upstream's table of JSON functions as TVM-FFI functions, for other languages in the process.

Importing this module registers `aiomlc.json_ffi.create`, which takes nothing and returns a map from
names to functions.
"""

from __future__ import annotations

__all__ = ("CREATE", "JSONFunctions", "create_functions")

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

from aiomlc.api.json_ffi.service import JSONService
from aiomlc.api.session.loader import Loader
from aiomlc.api.streams.portal import EnginePortal
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, EngineClosedError, EngineError
from aiomlc.runtime.native.library import register_global
from aiomlc.validation.arguments import wrong_type

CREATE = "aiomlc.json_ffi.create"
_CPU = 1  # DLPack's number of it.
_T = TypeVar("_T")


@final
class JSONFunctions:
    """One engine behind functions that take and give text and numbers. From any thread.

    The engine has a thread of its own. The two loops are for the caller's threads: one tells the
    callback what comes, the other ends the engine after `exit_background_loop`.
    """

    def __init__(self, loader: Loader | None = None) -> None:
        self._loader = loader
        self._service: JSONService | None = None
        self._portal: EnginePortal | None = None
        self._callback: Callable[[str], object] | None = None

    def __del__(self) -> None:
        if self._portal is not None:
            self._portal.close_quietly()

    def table(self) -> dict[str, Callable[..., Any]]:
        """The functions by upstream's names."""
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

        `callback` gets JSON lists of chunks, in the thread of `run_background_stream_back_loop`.

        Raises:
            BadRequestError: the device is not the CPU, whose type is 1 and whose id is 0, or the
                callback cannot be called.
            EngineError: the engine was started before.
        """
        if (device_type, device_id) != (_CPU, 0):
            raise BadRequestError(
                f"the device of type {device_type} and id {device_id} is not supported yet: "
                f"use type {_CPU}, the CPU, and id 0",
                param="device",
            )

        if not callable(callback):
            raise wrong_type("callback", callback, "a function")

        if self._service is not None:
            raise EngineError("the engine was started before")

        self._callback = callback
        self._service = JSONService("cpu", self._loader)
        self._portal = EnginePortal(self._service)

    def reload(self, engine_config_json: str) -> None:
        """Load the model of an `EngineConfig` as JSON, instead of the one that is loaded. Blocks.

        Raises:
            BadRequestError: the configuration is refused; the loaded model stays.
            ModelLoadError: the model cannot be opened; none is loaded then.
        """
        config = EngineConfig.from_json(engine_config_json)
        self._call(self._open_service().load, config)

    def unload(self) -> None:
        """End every request and free the model."""
        self._call(self._open_service().unload)

    def reset(self) -> None:
        """End every request and forget what was kept and counted.

        Raises:
            EngineClosedError: no model is loaded.
        """
        self._call(self._open_service().reset)

    def chat_completion(self, request_json: str, request_id: str) -> bool:
        """Begin to answer a request. A refused one returns False, and its answer is the error."""
        return self._call(self._open_service().submit, request_json, request_id)

    def abort(self, request_id: str) -> None:
        """End a request; its answer ends with the error. An unknown id does nothing."""
        self._call(self._open_service().abort, request_id)

    def get_last_error(self) -> str:
        """Why `chat_completion` returned False last; "" if it never did."""
        return self._open_service().last_error

    def run_background_loop(self) -> None:
        """Wait for `exit_background_loop`, then end the engine's thread and free everything."""
        service = self._open_service()
        if self._portal is not None:
            self._portal.call_if_open(service.wait_stopped)
            self._portal.close()

    def run_background_stream_back_loop(self) -> None:
        """Call the callback until the engine is ended and everything is told. Blocks.

        An error of the callback ends the loop and is raised; another call goes on.
        """
        service = self._open_service()
        assert self._callback is not None, "set with the service"
        while text := self._take(service):
            self._callback(text)

    def exit_background_loop(self) -> None:
        """End every request and let the two loops return. Does not wait for them; idempotent."""
        service = self._open_service()
        if self._portal is not None:
            self._portal.call_if_open(service.stop)

    def _take(self, service: JSONService) -> str:
        try:
            return self._call(service.take)
        except EngineClosedError:
            return service.take_rest()

    def _call(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        assert self._portal is not None, "set with the service"
        return self._portal.call(function, *args)

    def _open_service(self) -> JSONService:
        if self._service is None:
            raise EngineClosedError("the engine is not started: call init_background_engine")

        return self._service


def create_functions() -> dict[str, Callable[..., Any]]:
    """The functions of a new engine by name."""
    return JSONFunctions().table()


register_global(CREATE, create_functions)
