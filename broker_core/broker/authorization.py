"""Authorization of requests; an API declares the rights that it requires, see `api`.

Without an authorizer every client may do everything, and a check costs one attribute lookup.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.request_context import RequestContext
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.security.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType

logger = logging.getLogger(__name__)

# The error for a client without the right, by resource type.
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# What a response contains in place of operations that the request did not ask for.
OPERATIONS_NOT_REQUESTED = -(2**31)


class Unauthorized(KafkaError):
    """The error for a client without a right; the whole request is answered with it unless the handler catches it."""


def is_allowed(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> bool:
    authorizer = context.broker.authorizer
    return authorizer is None or authorizer.allows(
        context.principal, context.client_host, operation, resource_type, name
    )


def refusal(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> ErrorCode:
    """Return the error for a client without the right, NONE for one that has it; log each refusal.

    A request logs one line for each resource, however many of its partitions the request names, as in Kafka.
    """
    if context.broker.authorizer is None or is_allowed(context, operation, resource_type, name):
        return ErrorCode.NONE
    if context.refused is None:
        context.refused = set()
    if (operation, resource_type, name) in context.refused:
        return REFUSALS[resource_type]
    context.refused.add((operation, resource_type, name))
    # A name may contain line breaks, which would forge log lines.
    logger.info(
        "%r from %s has no right to %s %s %r, which %s needs",
        str(context.principal),
        context.client_host,
        operation.name,
        resource_type.name,
        name,
        context.request.api.name,
    )
    return REFUSALS[resource_type]


def require(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> None:
    """Raise `Unauthorized`, with Kafka's message, if the client may not perform the operation."""
    if context.broker.authorizer is not None and (code := refusal(context, operation, resource_type, name)):
        raise Unauthorized(code, STANDARD_MESSAGES[code])


def is_allowed_on_any(context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
    authorizer = context.broker.authorizer
    return authorizer is None or authorizer.allows_on_any(
        context.principal, context.client_host, operation, resource_type
    )


def may_see_topics(context: RequestContext) -> Callable[[str], bool] | None:
    """Return a predicate for the names of topics that the client may describe; None if it may describe all."""
    if context.broker.authorizer is None:
        return None
    return lambda name: is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)


def allowed_operations(
    context: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> frozenset[int]:
    """Return the numbers of the operations that the client may perform on the resource (KIP-430)."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return frozenset(SUPPORTED[resource_type])
    return authorizer.allowed_operations(context.principal, context.client_host, resource_type, name)


def operation_bits(context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """Return the operations that the client may perform on the resource, as the bit field of responses."""
    return sum(1 << number for number in allowed_operations(context, resource_type, name))
