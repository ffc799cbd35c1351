"""ACLs, their filters, and checks of their fields.

Operations, resource types, pattern types and permissions are numbered as in Kafka's protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode, KafkaError

# The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
# Matches any resource of a type (as a literal pattern), any host, and any user (as `User:*`).
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"


class ResourceType(IntEnum):
    """The types of protected resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of a resource name; ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations on resources."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies; ANY occurs in filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


# The operations that imply each key: ALLOW READ also allows DESCRIBE, but DENY READ does not deny it (rules G.1).
IMPLYING: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}

# The operations on each resource type that responses with allowed operations can contain.
SUPPORTED: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


class ResourcePattern(NamedTuple):
    """The resources of an ACL: one, all with a prefix, or all of a type (`*`)."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str


class Acl(NamedTuple):
    """An ACL: it allows or denies a principal at a host one operation on the resources of a pattern."""

    pattern: ResourcePattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, operation: Operation) -> bool:
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission == Permission.ALLOW and self.operation in IMPLYING.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of ACLs; a field that is None or ANY matches every value."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self._matches_pattern(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.pattern_type != PatternType.MATCH:
            return self.name in (None, pattern.name)
        # MATCH selects the ACLs that apply to a resource with this name.
        if pattern.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def check(self) -> None:
        """Raise INVALID_REQUEST if the filter contains unknown numbers."""
        if not (_is_one_of(ResourceType, self.resource_type) and _is_one_of(PatternType, self.pattern_type)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if not (_is_one_of(Operation, self.operation) and _is_one_of(Permission, self.permission)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


def new_acl(
    resource_type: int, pattern_type: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """Return an ACL from the fields in a request; raise INVALID_REQUEST if one is invalid."""
    if resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        _refuse(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        _refuse("Invalid empty resource name")
    if not _is_one_of(ResourceType, resource_type) or resource_type == ResourceType.ANY:
        _refuse("Invalid resourceType UNKNOWN")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        _refuse("Invalid patternType UNKNOWN")
    if not _is_one_of(Operation, operation) or operation == Operation.ANY:
        _refuse("Invalid operation UNKNOWN")
    if permission not in (Permission.ALLOW, Permission.DENY):
        _refuse("Invalid permissionType UNKNOWN")
    if ":" not in principal:
        _refuse(
            f"Could not parse principal from `{principal}` (no colon is present separating the principal type from the "
            "principal name)"
        )
    if not host:
        _refuse("Host pattern cannot be null or empty")
    if "/" in host and network_of(host) is None:
        _refuse(f"Invalid CIDR notation '{host}': Could not parse [{host}]")
    return stored_acl(resource_type, pattern_type, name, principal, host, operation, permission)


def stored_acl(
    resource_type: int, pattern_type: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """Return an ACL from stored fields, which were checked when it was created."""
    return Acl(
        ResourcePattern(ResourceType(resource_type), PatternType(pattern_type), name),
        principal,
        host,
        Operation(operation),
        Permission(permission),
    )


def network_of(host: str) -> IPv4Network | IPv6Network | None:
    """Return the network of a host in CIDR notation, None for any other host."""
    address, slash, bits = host.partition("/")
    if not slash or not bits.isdecimal():
        return None
    try:
        return ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def printed_host(host: str) -> str:
    """Return a client's address in the form in which Kafka compares it: Java does not shorten IPv6 addresses."""
    address = address_of(host) if ":" in host else None
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.partition("%")[0].split(":"))


def _is_one_of(kind: type[IntEnum], number: int) -> bool:
    return number in kind._value2member_map_


def _refuse(message: str) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
