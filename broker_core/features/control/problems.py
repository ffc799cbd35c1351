"""The answers to requests that are refused: an HTTP status, what is wrong, and what to do."""

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.control.documentation import fields_of
from broker_core.features.control.handles import UnknownIdError

logger = logging.getLogger(__name__)

BAD_REQUEST, NOT_FOUND, CONFLICT = 400, 404, 409
_SEE = "GET /openapi.json describes the fields of every request."
_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)
_UNUSABLE = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
)
# What cannot be read from the error itself.
_REMEDIES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "GET /topics lists the topics and their numbers of partitions.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use the topic, choose another name, or call POST /delete_topic first.",
    ErrorCode.INVALID_TXN_STATE: "GET /transaction shows the state.",
    ErrorCode.LEADER_NOT_AVAILABLE: "POST /reset ends all outages; POST /start_broker starts a broker.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "POST /reset ends all outages; POST /start_broker starts a broker.",
    ErrorCode.BROKER_NOT_AVAILABLE: "GET /brokers lists the brokers; POST /start_broker starts one.",
}


def refusal(status: int, error: str, what_to_do: str, code: str | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "what_to_do": what_to_do, "code": code}, status)


def refuse_properly(app: FastAPI) -> None:
    """Set the JSON answers of an app for everything that its functions raise."""
    for kind in (KafkaError, LookupError, ValueError, TypeError, RuntimeError, AssertionError, TimeoutError):
        app.add_exception_handler(kind, _of_call)
    app.add_exception_handler(Exception, _of_bug)
    app.add_exception_handler(RequestValidationError, _of_fields)
    app.add_exception_handler(HTTPException, _of_path)


async def _of_call(request: Request, error: Exception) -> JSONResponse:
    """Answer for an error of a method of the broker."""
    if isinstance(error, KafkaError):
        status = NOT_FOUND if error.code in _UNKNOWN else BAD_REQUEST if error.code in _UNUSABLE else CONFLICT
        remedy = _REMEDIES.get(error.code, _SEE if status == BAD_REQUEST else "Change the state, then repeat the call.")
        return refusal(status, str(error), remedy, error.code.name)
    text = str(error)
    if isinstance(error, UnknownIdError):
        return refusal(NOT_FOUND, text, "Use the id that the creation returned.")
    if isinstance(error, LookupError):
        # The methods for transactions raise it with a sentence; any other key is a bug.
        [sentence] = error.args if len(error.args) == 1 and isinstance(error, KeyError) else [None]
        if not isinstance(sentence, str):
            return await _of_bug(request, error)
        return refusal(NOT_FOUND, sentence, "GET /transactions lists the transactional ids.")
    if isinstance(error, ValueError | TypeError):
        return refusal(BAD_REQUEST, text, _SEE)
    if not text:
        return await _of_bug(request, error)
    if isinstance(error, AssertionError | TimeoutError):
        return refusal(CONFLICT, text, "GET /report shows requests, partitions, transactions and groups.")
    remedy = "Change the state, then repeat the call."
    if "have crashed" in text:
        remedy = "Call POST /restart."
    elif "clock is real" in text:
        remedy = "Start broker-core with --clock virtual."
    return refusal(CONFLICT, text, remedy)


async def _of_bug(request: Request, error: Exception) -> JSONResponse:
    """Answer for an error that no request should cause."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return refusal(500, f"unexpected {type(error).__name__}: {error}", "Report it, with the output of broker-core.")


async def _of_fields(request: Request, error: Exception) -> JSONResponse:
    """Answer for fields that do not have their form."""
    assert isinstance(error, RequestValidationError)
    path, method = request.url.path, request.method.lower()
    known = _fields(request.app.openapi(), path, method)
    found = list(dict.fromkeys(_described(each) for each in error.errors()))
    remedies = [
        f"{request.method} {path} has {', '.join(known) or 'no fields'}.{suggestion(str(each['loc'][-1]), known)}"
        for each in error.errors()
        if each["type"] == "extra_forbidden" and len(each["loc"]) == 2
    ]
    return refusal(BAD_REQUEST, "; ".join(found), " ".join(dict.fromkeys(remedies)) or _SEE)


def _described(error: dict[str, Any]) -> str:
    # The names of alternatives, such as list[...], are left out.
    place = ".".join(str(each) for each in error["loc"][1:] if "[" not in str(each))
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error.get('ctx', {}).get('error', 'it cannot be parsed')}"
    if error["type"] == "extra_forbidden":
        return f"{place}: there is no such field"
    if error["type"] == "missing":
        return f"{place or 'body'}: the field is missing"
    text = str(error["msg"]).removeprefix("Value error, ")
    return f"{place or 'body'}: {text[:1].lower()}{text[1:]}"


def _fields(description: dict[str, Any], path: str, method: str) -> list[str]:
    operation = description["paths"].get(path, {}).get(method, {})
    return [name for name, _, _ in fields_of(description["components"]["schemas"], operation)]


async def _of_path(request: Request, error: Exception) -> JSONResponse:
    """Answer for an address that does not exist, a wrong method, or a body that cannot be read."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    methods = {each: sorted(found) for each, found in request.app.openapi()["paths"].items()}
    if error.status_code == NOT_FOUND:
        return refusal(
            NOT_FOUND, f"there is no {path}", f"GET /openapi.json lists all addresses.{suggestion(path, methods)}"
        )
    if error.status_code == 405:
        allowed = [each.upper() for each in methods.get(path, ("get",))]
        return refusal(405, f"{path} has no method {request.method}", f"Use {' or '.join(allowed)}.")
    return refusal(error.status_code, str(error.detail), _SEE)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the most similar one, empty if none is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""
