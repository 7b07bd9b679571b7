"""The exceptions of the library.

AiomlcError
├── RequestError                the caller can fix the request (HTTP 400)
│   ├── BadRequestError         a field is invalid or not supported; also a ValueError
│   │   ├── UnsupportedFieldError  a field is unknown, or asks for what does not exist
│   │   └── GrammarError        a schema, regex or grammar cannot be enforced
│   ├── PromptTooLongError      the prompt leaves no room for a completion; also a ValueError
│   ├── InputTooLongError       an input has too many tokens for the encoder; also a ValueError
│   ├── DuplicateRequestError   the request_id belongs to a running request; also a RuntimeError
│   ├── DeadlineExceededError   a time limit set by the request has passed; also a TimeoutError
│   ├── PrefixTransferError     a transferred prefix is damaged or does not fit; also a ValueError
│   ├── PrefixNotCachedError    a prefix to be transferred is not in the prefix cache
│   ├── LogitsProcessorError    a logits processor of the request raised an exception
│   ├── IncompleteAnswerError   the completion is not a value of the requested type
│   └── RequestAbortedError     the request was aborted
├── EngineError                 the caller cannot fix the error (HTTP 5xx); also a RuntimeError
│   ├── EngineOverloadedError   the queue is full; the request may be retried later
│   ├── EngineDrainingError     the engine is draining and rejects new requests
│   ├── EngineClosedError       the engine was terminated or its scope was left; also a ValueError
│   ├── EngineDeadError         the engine failed and cannot serve any request
│   ├── ReplicaLostError        the process of the engine ended while it ran the request
│   ├── RemoteServerError       a server to which a router sent the request failed
│   └── RequestFailedError      only this request failed; the engine continues to serve
├── MissingPackageError         an optional package is not installed; also an ImportError
└── ModelLoadError              a model cannot be opened; also a RuntimeError
    ├── ModelNotFoundError      a file, directory or repository is missing; a FileNotFoundError
    ├── ModelDownloadError      a model cannot be downloaded from the hub
    │   └── ModelAccessError    the hub refuses access to a model; also a PermissionError
    ├── InsufficientMemoryError the memory is too small for the model or its KV cache
    └── CompileError            the model's library cannot be compiled

The built-in base classes are the classes that MLC LLM raises, so handlers written for it work.
Classes that native code raises by name must be constructible from the message alone.
"""

from __future__ import annotations

__all__ = (
    "AiomlcError",
    "BadRequestError",
    "CompileError",
    "DeadlineExceededError",
    "DuplicateRequestError",
    "EngineClosedError",
    "EngineDeadError",
    "EngineDrainingError",
    "EngineError",
    "EngineOverloadedError",
    "GrammarError",
    "IncompleteAnswerError",
    "InputTooLongError",
    "LogitsProcessorError",
    "MissingPackageError",
    "ModelAccessError",
    "ModelDownloadError",
    "ModelLoadError",
    "ModelNotFoundError",
    "PrefixNotCachedError",
    "PrefixTransferError",
    "PromptTooLongError",
    "RemoteServerError",
    "ReplicaLostError",
    "RequestAbortedError",
    "RequestError",
    "RequestFailedError",
    "UnsupportedFieldError",
)

import errno
from os import PathLike
from typing import Any


class AiomlcError(Exception):
    """The base class of all exceptions of the library, which can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class again: constructors take what a message is made of.
        state = dict(self.__dict__)
        for name in ("errno", "name"):  # Of OSError and ImportError, which keep them elsewhere.
            if (value := getattr(self, name, None)) is not None:
                state[name] = value

        return _restore, (type(self), self.args), state


def _restore(error_type: type[AiomlcError], args: tuple[Any, ...]) -> AiomlcError:
    # Where there are several built-in bases, `__new__` of the class is not the right one.
    base = OSError if issubclass(error_type, OSError) else BaseException
    error: AiomlcError = base.__new__(error_type)
    error.args = args
    return error


class RequestError(AiomlcError):
    """The request cannot be served; the engine is not at fault."""


class BadRequestError(RequestError, ValueError):
    """A field or an argument is invalid or not supported."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param  #: The path of the field, such as `messages[0].content`, if known.


class UnsupportedFieldError(BadRequestError):
    """A field is unknown, or has a value that asks for what does not exist."""


class GrammarError(BadRequestError):
    """The JSON schema, regex or grammar is invalid, or uses an unsupported feature."""


class PromptTooLongError(RequestError, ValueError):
    """The prompt leaves no room for a completion; both lengths are in tokens."""

    def __init__(
        self,
        message: str = "",
        *,
        prompt_tokens: int | None = None,
        context_window: int | None = None,
    ) -> None:
        if not message:
            message = f"prompt has {prompt_tokens} tokens, context window is {context_window}"
            if prompt_tokens is not None and context_window is not None:
                message += (
                    f"; shorten it by at least {prompt_tokens - context_window + 1} tokens, or "
                    "raise max_single_sequence_length if the model allows more"
                )
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.context_window = context_window


class InputTooLongError(RequestError, ValueError):
    """An input of an encoder is too long; both lengths are in tokens.

    A very long input is not encoded, so that `num_tokens` is a lower bound.
    """

    def __init__(
        self,
        *,
        index: int,
        num_tokens: int,
        max_tokens: int,
        is_lower_bound: bool = False,
        field: str = "input",
    ) -> None:
        super().__init__(
            f"{field}[{index}]: must have at most {max_tokens} tokens, got "
            f"{'at least ' if is_lower_bound else ''}{num_tokens}; pass truncate=True to truncate "
            "it"
        )
        self.index = index
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class DuplicateRequestError(RequestError, RuntimeError):
    """The `request_id` belongs to a request that is still running."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request_id {request_id!r} belongs to a request that is still running")
        self.request_id = request_id


class DeadlineExceededError(RequestError, TimeoutError):
    """A time limit set by the request has passed.

    A stream delivers the tokens generated before the limit, and then raises this error.
    """

    def __init__(self, request_id: str, *, limit: str, seconds: float | None) -> None:
        super().__init__(f"request {request_id!r} exceeded its {limit} of {seconds} s")
        self.request_id = request_id
        self.limit = limit  #: "timeout", "first_token_timeout" or "inter_token_timeout".
        self.seconds = seconds


class PrefixTransferError(RequestError, ValueError):
    """A piece of a transferred prefix is damaged, or comes from an engine with another model.

    Nothing of the piece was stored.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field  #: The part that differs, such as `digest`, `kv_dtype` or `weights`.


class PrefixNotCachedError(RequestError):
    """A prefix, or the part before the piece to import, is not in the prefix cache (any more).

    Export it again from its beginning.
    """


class LogitsProcessorError(RequestError):
    """A logits processor of the request raised an exception, which is `__cause__`.

    Other requests are not affected.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(f"a logits processor of request {request_id!r} failed")
        self.request_id = request_id


class IncompleteAnswerError(RequestError):
    """The completion was cut off, or is not a valid value of the requested type."""

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text  #: The generated text.


class RequestAbortedError(RequestError):
    """The request was aborted by `abort`."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} was aborted")
        self.request_id = request_id


class EngineError(AiomlcError, RuntimeError):
    """The engine cannot serve the request, for a reason that the request cannot change."""


class EngineOverloadedError(EngineError):
    """The batch is full, and so is the queue (`max_queue_size`).

    Other requests are not affected.
    """


class EngineDrainingError(EngineError):
    """The engine is finishing its requests and rejects new ones until it is resumed."""


class EngineClosedError(EngineError, ValueError):
    """The engine was terminated, or its scope was left."""

    def __init__(
        self,
        message: str = "the engine is closed: it was terminated, or its scope was left; open a new "
        "engine",
    ) -> None:
        super().__init__(message)


class EngineDeadError(EngineError):
    """The engine failed; all of its current and later requests raise this error."""


class ReplicaLostError(EngineError):
    """The process of the engine that ran the request ended, in an application of several replicas.

    The other replicas serve. A request without output was sent to others first.
    """

    def __init__(self, message: str = "", *, has_output: bool = False) -> None:
        super().__init__(
            message
            or (
                "the replica that ran the request was lost, and with it the rest of the output"
                if has_output
                else "the replicas that ran the request were lost before it had any output"
            )
        )
        self.has_output = has_output  #: Whether a part of the response had arrived.


class RemoteServerError(EngineError):
    """A server to which a `Router` sent the request failed, or cannot be reached."""

    def __init__(
        self, message: str, *, url: str, status: int | None = None, code: str | None = None
    ) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url  #: The path that was requested.
        self.status = status  #: The HTTP status of the answer; None if there was none.
        self.code = code  #: The code of the error in the answer, if any.


class RequestFailedError(EngineError):
    """The request failed inside the engine, which continues to serve other requests."""


class MissingPackageError(AiomlcError, ImportError):
    """An optional package, or a version of it that fits, is not installed.

    `name` names the package, and the message the command that installs it.
    """

    def __init__(self, name: str, command: str, reason: str | None = None) -> None:
        super().__init__(f"{reason or f'the package {name} is missing'}: {command}", name=name)


class ModelLoadError(AiomlcError, RuntimeError):
    """A model cannot be opened; the attributes name the file, tensor or field at fault."""

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        tensor: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.tensor = tensor
        self.field = field


class ModelNotFoundError(ModelLoadError, FileNotFoundError):
    """A file, directory or repository of a model does not exist; `path` names it."""

    def __init__(
        self, message: str, *, path: str | PathLike[str] | None = None, field: str | None = None
    ) -> None:
        super().__init__(message, path=path, field=field)
        self.errno: int | None = errno.ENOENT


class ModelDownloadError(ModelLoadError):
    """A model cannot be downloaded; the message says what to do."""

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        field: str | None = None,
        repository: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, path=path, field=field)
        self.repository = repository
        self.status = status  #: The HTTP status of the hub's answer; None if there was none.
        self.retry_after = retry_after  #: Seconds to wait if the hub limits the rate, if known.


class ModelAccessError(ModelDownloadError, PermissionError):
    """The hub refuses access to a private or gated repository."""


class CompileError(ModelLoadError):
    """The model's library cannot be compiled; the message contains the compiler's output."""
