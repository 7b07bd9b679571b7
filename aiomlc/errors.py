"""Every exception the library raises on purpose.

AiomlcError
├── RequestError                the caller can fix it (HTTP 400)
│   ├── BadRequestError         a field is invalid or not supported; also a ValueError
│   │   └── GrammarError        a schema, regex or grammar cannot be enforced
│   ├── PromptTooLongError      the prompt leaves no room for a completion; also a ValueError
│   ├── InputTooLongError       an input has more tokens than an encoder takes; also a ValueError
│   ├── DuplicateRequestError   the request_id belongs to a live request; also a RuntimeError
│   ├── DeadlineExceededError   a time limit of the request's own passed; also a TimeoutError
│   ├── LogitsProcessorError    a logits processor of the request raised an exception
│   ├── IncompleteAnswerError   the answer is not a value of the type that was asked for
│   └── RequestAbortedError     somebody else ended the request
├── EngineError                 the caller cannot fix it (HTTP 5xx); also a RuntimeError
│   ├── EngineOverloadedError   as many requests wait as may; later is another try
│   ├── EngineDrainingError     the engine takes no more requests for now
│   ├── EngineClosedError       the engine was terminated or its scope was left; also a ValueError
│   ├── EngineDeadError         the engine failed and serves no longer
│   └── RequestFailedError      this request failed alone; the engine serves on
└── ModelLoadError              raised while opening an engine only; also a RuntimeError
    ├── ModelNotFoundError      a directory or a file is not there; also a FileNotFoundError
    ├── InsufficientMemoryError the memory does not hold what was asked for
    └── CompileError            the model's library could not be compiled

The built-in classes are those that upstream raises, so that its callers' handlers hold.
The classes that native code raises by name are constructed from their message alone.
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
    "ModelLoadError",
    "ModelNotFoundError",
    "PromptTooLongError",
    "RequestAbortedError",
    "RequestError",
    "RequestFailedError",
)

import errno
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class AiomlcError(Exception):
    """The root: everything the library raises on purpose."""


class RequestError(AiomlcError):
    """The request cannot be served as it is; another one can."""


class BadRequestError(RequestError, ValueError):
    """A field is invalid or not supported; `param` names it where it is known."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class GrammarError(BadRequestError):
    """A JSON schema, a regular expression or a grammar is none, or uses what is not supported."""


class PromptTooLongError(RequestError, ValueError):
    """The prompt leaves no room for a completion; both counts are in tokens."""

    def __init__(
        self,
        message: str = "",
        *,
        prompt_tokens: int | None = None,
        context_window: int | None = None,
    ) -> None:
        super().__init__(
            message or f"prompt has {prompt_tokens} tokens, context window is {context_window}"
        )
        self.prompt_tokens = prompt_tokens
        self.context_window = context_window


class InputTooLongError(RequestError, ValueError):
    """One of the inputs of a request for embeddings is too long; both counts are in tokens."""

    def __init__(self, *, index: int, num_tokens: int, max_tokens: int) -> None:
        super().__init__(
            f"input[{index}] has {num_tokens} tokens, the model takes {max_tokens}; "
            "truncate=True cuts it"
        )
        self.index = index
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class DuplicateRequestError(RequestError, RuntimeError):
    """The `request_id` is the label of a request that is still running."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request_id {request_id!r} belongs to a request that is still running")
        self.request_id = request_id


class DeadlineExceededError(RequestError, TimeoutError):
    """A time limit that the request set has passed; what was said before it has been read."""

    def __init__(self, request_id: str, *, limit: str, seconds: float | None) -> None:
        super().__init__(f"request {request_id!r} was ended by its {limit} of {seconds} s")
        self.request_id = request_id
        self.limit = limit  #: "timeout", "first_token_timeout" or "inter_token_timeout".
        self.seconds = seconds


class LogitsProcessorError(RequestError):
    """A logits processor of the request raised what `__cause__` is; no other request noticed."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"a logits processor of request {request_id!r} failed")
        self.request_id = request_id


class IncompleteAnswerError(RequestError):
    """An answer was cut, or is no value of the type that was asked for; `text` is what there is."""

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


class RequestAbortedError(RequestError):
    """The request was ended by `abort`, not by its reader."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} was aborted")
        self.request_id = request_id


class EngineError(AiomlcError, RuntimeError):
    """The engine cannot serve, whatever the request says."""


class EngineOverloadedError(EngineError):
    """As many requests run and wait as may (`max_queue_size`); no other request noticed."""


class EngineDrainingError(EngineError):
    """The engine finishes what it has and takes nothing more, until it is resumed."""


class EngineClosedError(EngineError, ValueError):
    """The engine was terminated, or its scope was left."""


class EngineDeadError(EngineError):
    """The engine failed; every request it had and every later one gets this error."""


class RequestFailedError(EngineError):
    """This request failed inside the engine, alone; the engine serves on."""


class ModelLoadError(AiomlcError, RuntimeError):
    """A model could not be opened; the attributes say which file, tensor or field is at fault."""

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
    """A directory or a file of a model is not there; `path` says which."""

    def __init__(
        self, message: str, *, path: str | PathLike[str] | None = None, field: str | None = None
    ) -> None:
        super().__init__(message, path=path, field=field)
        self.errno: int | None = errno.ENOENT


class CompileError(ModelLoadError):
    """The model's library could not be compiled; the message carries the compiler's reason."""
