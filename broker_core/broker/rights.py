"""Ask whether the client of a call may do what it asks for; `security.checks` lists what each API asks for.

Without an authorizer every client may do everything, and a question costs one look at an attribute.
"""

import logging
from collections.abc import Callable

from broker_core.broker.call import Call
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from broker_core.security.checks import REFUSALS

log = logging.getLogger(__name__)


def is_allowed(call: Call, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
    """Say whether the client may do this to the resource."""
    authorizer = call.broker.authorizer
    return authorizer is None or authorizer.allows(call.principal, call.client_host, operation, resource_type, name)


def refusal(call: Call, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> ErrorCode:
    """Return the verdict on a client that may not do this, NONE on one that may; note in the log what was tried.

    A request has one line for each resource, however many partitions of it are asked for: so it is with Kafka.
    """
    if is_allowed(call, operation, resource_type, name):
        return ErrorCode.NONE
    if call.refused is None:
        call.refused = set()
    if (operation, resource_type, name) in call.refused:
        return REFUSALS[resource_type]
    call.refused.add((operation, resource_type, name))
    # A name may hold line breaks, which would make lines of their own.
    log.info(
        "%r from %s has no right to %s %s %r, which %s needs",
        str(call.principal),
        call.client_host,
        operation.name,
        resource_type.name,
        name,
        call.request.api.name,
    )
    return REFUSALS[resource_type]


def require(call: Call, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
    """Raise the verdict on a client that may not do this.

    Its message may go to the client, so it does not name what was asked for by an id.
    """
    code = refusal(call, operation, resource_type, name)
    if code:
        raise KafkaError(code, f"{call.principal} has no right to {operation.name} this {resource_type.name}")


def is_allowed_on_any(call: Call, operation: Operation, resource_type: ResourceType) -> bool:
    """Say whether there may be a resource to which the client may do this."""
    authorizer = call.broker.authorizer
    return authorizer is None or authorizer.allows_on_any(call.principal, call.client_host, operation, resource_type)


def only_allowed(call: Call, operation: Operation, resource_type: ResourceType) -> Callable[[str], bool] | None:
    """Return what chooses the names that the client may do this to; None where all may be chosen."""
    if call.broker.authorizer is None:
        return None
    return lambda name: is_allowed(call, operation, resource_type, name)


def allowed_operations(call: Call, resource_type: ResourceType, name: str = CLUSTER_NAME) -> frozenset[int]:
    """Return the numbers of what the client may do to the resource (KIP-430)."""
    authorizer = call.broker.authorizer
    if authorizer is None:
        return frozenset(SUPPORTED[resource_type])
    return authorizer.allowed_operations(call.principal, call.client_host, resource_type, name)
