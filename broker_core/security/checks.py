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
from broker_core.security.acls import Operation as Op
from broker_core.security.acls import ResourceType

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
USER, DELEGATION_TOKEN = ResourceType.USER, ResourceType.DELEGATION_TOKEN

FILTERED: Final = None

# The error for a client without the right, by resource type.
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: Op
    resource_type: ResourceType


class Check(NamedTuple):
    """The requirement of at least one of several rights; `refused` is the error without any of them."""

    one_of: tuple[Right, ...]
    refused: ErrorCode | None


def needs(operation: Op, resource_type: ResourceType, refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    """Return the check of one right; by default with the error of the resource type."""
    return needs_one((operation, resource_type), refused=refused)


def needs_one(*rights: tuple[Op, ResourceType], refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    """Return a check; by default with the error of the last right's resource type."""
    if refused is ErrorCode.NONE:
        refused = REFUSALS[rights[-1][1]]
    return Check(tuple(Right(*right) for right in rights), refused)
