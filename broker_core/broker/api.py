"""The declaration of an API, which stands beside its handler."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from broker_core.broker.request_context import ApiCall
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import FILTERED, Check, needs_one
from broker_core.wire import messages as m
from broker_core.wire.framing import Response
from broker_core.wire.served import Echo, Secrets, ServedApi

RequestT = TypeVar("RequestT", bound="m.ApiMessage")

# It returns the response, or None if it answers later or in another way.
Handler = Callable[[ApiCall[Any]], Response | None]


class Api(NamedTuple):
    """An API: its messages and versions, its handler, and the rights that the handler checks, in this order."""

    served: ServedApi
    handle: Handler
    rights: tuple[Check, ...]


def api(
    request: type[RequestT],
    versions: tuple[int, int],
    handle: Callable[[ApiCall[RequestT]], Response | None],
    *rights: str | Check,
    advertised_min: int | None = None,
    echoes: tuple[Echo, ...] = (),
    unspecific: range = range(0),
    secrets: Secrets = Secrets.NONE,
) -> Api:
    """Declare an API by its request, the first and last version, the handler and the rights; see `ServedApi`, `right`.

    The ranges are as in Apache Kafka 4.4, as far as they are implemented (rules J.1).
    """
    name = request.name.removesuffix("Request")
    response = getattr(m, f"{name}Response")
    low, high = versions
    first = low if advertised_min is None else advertised_min
    served = ServedApi(request.API_KEY, name, request, response, low, high, first, echoes, unspecific, secrets)
    return Api(served, handle, tuple(right(each) if isinstance(each, str) else each for each in rights))


def right(text: str) -> Check:
    """Return the check that a text names, by default with the error of the last right's resource type.

    `READ GROUP` is a right, `CREATE CLUSTER or CREATE TOPIC` is one of two. With `or nothing` at the end, the response
    omits what the client has no right to.
    """
    *rights, last = (each.split() for each in text.split(" or "))
    if last != ["nothing"]:
        rights.append(last)
    pairs = [(Operation[operation], ResourceType[kind]) for operation, kind in rights]
    return needs_one(*pairs, refused=FILTERED if last == ["nothing"] else ErrorCode.NONE)
