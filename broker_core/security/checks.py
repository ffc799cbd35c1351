"""The rights that an API needs: the operation, the type of resource, and the error without it.

Owns: the form. APIs declare their rights, and their handlers check in that order, for the resources in a request.
Uses: `acls`, `errors`.
Never: decides; the authorizer does.

The declarations follow Kafka's KafkaApis, ControllerApis and AclApis, and rules G.1. `FILTERED` means that the response
omits resources for which the client has no right, as if they did not exist.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType

FILTERED: Final = None

# The error for a client without the right, by resource type.
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: Operation
    resource_type: ResourceType


class Check(NamedTuple):
    """The requirement of at least one of several rights; `refused` is the error without any of them."""

    one_of: tuple[Right, ...]
    refused: ErrorCode | None


def right(text: str) -> Check:
    """Return the check that a text names, with the error of the last right's resource type.

    `READ GROUP` is a right, `CREATE CLUSTER or CREATE TOPIC` is one of two. With `or nothing` at the end, the response
    omits what the client has no right to.
    """
    named, is_filtered = text.removesuffix(" or nothing"), text.endswith(" or nothing")
    pairs = (each.split() for each in named.split(" or "))
    rights = tuple(Right(Operation[operation], ResourceType[kind]) for operation, kind in pairs)
    return Check(rights, FILTERED if is_filtered else REFUSALS[rights[-1].resource_type])
