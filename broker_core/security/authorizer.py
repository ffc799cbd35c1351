"""The authorizer, with the rules of Kafka's StandardAuthorizer.

A matching DENY rule refuses an operation, else a matching ALLOW rule permits it. A resource without ACLs is subject to
`allow.everyone.if.no.acl.found`. Rules are looked up by resource name, so the number of look-ups does not depend on the
number of ACLs: one by name, one for `*`, and one for each prefix length in use for the resource type.
"""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.security.acls import (
    ANY_USER,
    SUPPORTED,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    address_of,
    network_of,
    printed_host,
)
from broker_core.security.principals import LOCAL_CLIENT, Principal

# The name that Kafka uses in this check for an arbitrary resource; usually no ACL names it.
_UNHEARD_OF = "hardcode"


class _AclRule(NamedTuple):
    """An ACL with its parsed host."""

    acl: Acl
    network: IPv4Network | IPv6Network | None

    def is_about(self, host: str) -> bool:
        if self.acl.host in (WILDCARD, host):
            return True
        if self.network is None:
            return False
        address = address_of(host)
        return address is not None and address in self.network


class Acls:
    """The existing ACLs, by pattern and principal."""

    def __init__(self) -> None:
        self._rules: dict[ResourcePattern, dict[str, dict[Acl, _AclRule]]] = {}
        # The number of prefixed patterns of each length, so that a look-up tries only lengths in use.
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}

    def __iter__(self) -> Iterator[Acl]:
        return (acl for principals in self._rules.values() for rules in principals.values() for acl in rules)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._rules.get(acl.pattern, {}).get(acl.principal, {})

    def add(self, acl: Acl) -> None:
        principals = self._rules.get(acl.pattern)
        if principals is None:
            principals = self._rules[acl.pattern] = {}
            if acl.pattern.pattern_type is PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.pattern.resource_type, Counter())[len(acl.pattern.name)] += 1
        principals.setdefault(acl.principal, {})[acl] = _AclRule(acl, network_of(acl.host))

    def remove(self, acl: Acl) -> None:
        principals = self._rules[acl.pattern]
        del principals[acl.principal][acl]
        if not principals[acl.principal]:
            del principals[acl.principal]
        if principals:
            return
        del self._rules[acl.pattern]
        if acl.pattern.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.pattern.resource_type]
            lengths[len(acl.pattern.name)] -= 1
            if not lengths[len(acl.pattern.name)]:
                del lengths[len(acl.pattern.name)]

    def about(self, resource_type: ResourceType, name: str) -> Iterator[dict[str, dict[Acl, _AclRule]]]:
        """Yield the rules of each pattern that matches a resource, grouped by principal."""
        patterns = [ResourcePattern(resource_type, PatternType.LITERAL, name)]
        if name != WILDCARD:
            patterns.append(ResourcePattern(resource_type, PatternType.LITERAL, WILDCARD))
        patterns += [
            ResourcePattern(resource_type, PatternType.PREFIXED, name[:length])
            for length in self._prefix_lengths.get(resource_type, ())
            if length <= len(name)
        ]
        for pattern in patterns:
            principals = self._rules.get(pattern)
            if principals is not None:
                yield principals


class Authorizer:
    """The decisions by ACLs, super users, and the default for resources without ACLs."""

    def __init__(self, acls: Acls, *, super_users: str, allows_by_default: bool) -> None:
        self._acls = acls
        self._super_users = _parse_super_users(super_users) | {str(LOCAL_CLIENT)}
        self._allows_by_default = allows_by_default

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        who = str(principal)
        if who in self._super_users:
            return True
        host = printed_host(host)
        has_acls, is_allowed = False, False
        for principals in self._acls.about(resource_type, name):
            has_acls = True
            for rule in (*principals.get(who, {}).values(), *principals.get(ANY_USER, {}).values()):
                if rule.acl.covers(operation) and rule.is_about(host):
                    if rule.acl.permission == Permission.DENY:
                        return False
                    is_allowed = True
        return is_allowed if has_acls else self._allows_by_default

    def allowed_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> frozenset[Operation]:
        return frozenset(
            operation
            for operation in SUPPORTED[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def allows_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the client may perform the operation on some resource of the type, existing or not.

        InitProducerId without a transactional id requires this for WRITE on topics (KIP-679).
        """
        if self.allows(principal, host, operation, resource_type, _UNHEARD_OF):
            return True
        principals, host = (str(principal), ANY_USER), printed_host(host)
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for acl in self._acls:
            # As in Kafka, an implied operation does not count here: only the operation itself and ALL do.
            if (
                acl.pattern.resource_type != resource_type
                or acl.principal not in principals
                or acl.operation not in (operation, Operation.ALL)
                or not _AclRule(acl, network_of(acl.host)).is_about(host)
            ):
                continue
            if acl.permission == Permission.ALLOW:
                allowed.append(acl.pattern)
            elif acl.pattern == ResourcePattern(resource_type, PatternType.LITERAL, WILDCARD):
                return False
            else:
                denied.add(acl.pattern)
        return any(not _is_dominated(pattern, denied) for pattern in allowed)


def authorizer_for(config: BrokerConfig, acls: Acls) -> Authorizer | None:
    """Return the authorizer of these settings; None if no authorizer is set."""
    if not config.authorizer_class_name:
        return None
    return Authorizer(acls, super_users=config.super_users, allows_by_default=config.allow_everyone_if_no_acl_is_found)


def _is_dominated(allowed: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether a DENY rule covers all resources of an allowed pattern; the caller handles DENY on `*`."""
    kind, pattern_type, name = allowed
    if pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if allowed in denied:
            return True
    return any(
        ResourcePattern(kind, PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)
    )


def _parse_super_users(text: str) -> frozenset[str]:
    users = frozenset(part.strip() for part in text.split(";")) - {""}
    for each in sorted(users):
        if ":" not in each:
            raise ConfigError(f"super.users={text!r}: {each!r} is not a principal; write User:{each}, separated by ';'")
    return users
