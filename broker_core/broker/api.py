"""The declaration of an API, which stands beside its handler."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from broker_core.broker.request_context import ApiCall
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.framing import Response
from broker_core.wire.served import Echo, Secrets, ServedApi

RequestT = TypeVar("RequestT", bound="m.ApiMessage")

# It returns the response, or None if it answers later or in another way.
Handler = Callable[[ApiCall[Any]], Response | None]
# It returns the partitions that a request need not name, because the session of its client has them.
InSession = Callable[[ApiCall[Any]], Iterable[TopicPartition]]


def _no_session(_call: object) -> Iterable[TopicPartition]:
    return ()


class Api(NamedTuple):
    """An API: its messages and versions, its handler, and the rights that the handler checks, in this order.

    `READ GROUP` names one right. With `CREATE CLUSTER or CREATE TOPIC` either right is enough. A client without any
    gets the error of the last right's resource type, unless a text such as `READ TOPIC: INVALID_REQUEST` names
    another error. With `or nothing` at the end, the response omits what the client has no right to. The rights follow
    Kafka's KafkaApis, ControllerApis and AclApis, and rules G.1.
    """

    served: ServedApi
    handle: Handler
    rights: tuple[str, ...]
    in_session: InSession


def api(
    request: type[RequestT],
    versions: tuple[int, int],
    handle: Callable[[ApiCall[RequestT]], Response | None],
    *rights: str,
    advertised_min: int | None = None,
    echoes: Echo | tuple[Echo, ...] = (),
    unspecific: range = range(0),
    secrets: Secrets = Secrets.NONE,
    in_session: Callable[[ApiCall[RequestT]], Iterable[TopicPartition]] = _no_session,
) -> Api:
    """Declare an API by its request, the first and last version, the handler and the rights; see `ServedApi`, `Api`.

    The ranges are as in Apache Kafka 4.4, as far as they are implemented (rules J.1).
    """
    name = request.name.removesuffix("Request")
    response = getattr(m, f"{name}Response")
    low, high = versions
    first = low if advertised_min is None else advertised_min
    echoed = (echoes,) if isinstance(echoes, Echo) else echoes
    served = ServedApi(request.API_KEY, name, request, response, low, high, first, echoed, unspecific, secrets)
    return Api(served, handle, rights, in_session)
