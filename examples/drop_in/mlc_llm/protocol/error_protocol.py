"""The errors of requests, and MLC LLM's answer with one: the JSON text of a JSON object."""

from __future__ import annotations

import json
from http import HTTPStatus

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse

from aiomlc import BadRequestError as BadRequestError


class ErrorResponse(BaseModel):
    """The object in an answer with an error."""

    object: str = "error"
    message: str
    code: int | None = None


def error_body(status: int, message: str) -> bytes:
    """Return the body of an answer with an error."""
    return json.dumps(ErrorResponse(message=message, code=status).model_dump_json()).encode()


def create_error_response(status_code: HTTPStatus, message: str) -> JSONResponse:
    """Return an answer with an error."""
    content = ErrorResponse(message=message, code=int(status_code)).model_dump_json()
    return JSONResponse(content, int(status_code))


async def bad_request_error_handler(_: Request, error: BadRequestError) -> JSONResponse:
    """Answer a request that raised `BadRequestError`."""
    return create_error_response(HTTPStatus.BAD_REQUEST, str(error))
