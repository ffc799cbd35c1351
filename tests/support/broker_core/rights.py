"""The rights that an API declares, read from their text; `FILTERED` stands for a response that omits resources."""

from typing import Final, NamedTuple

from broker_core.broker.authorization import REFUSALS
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType

FILTERED: Final = None


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: Operation
    resource_type: ResourceType


class Check(NamedTuple):
    """The requirement of at least one of several rights; `refused` is the error without any of them."""

    one_of: tuple[Right, ...]
    refused: ErrorCode | None


def check_of(text: str) -> Check:
    named, _, error = text.partition(": ")
    pairs = (each.split() for each in named.removesuffix(" or nothing").split(" or "))
    rights = tuple(Right(Operation[operation], ResourceType[kind]) for operation, kind in pairs)
    if named.endswith(" or nothing"):
        return Check(rights, FILTERED)
    return Check(rights, ErrorCode[error] if error else REFUSALS[rights[-1].resource_type])
