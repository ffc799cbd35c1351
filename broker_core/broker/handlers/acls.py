"""The APIs that create, describe and delete ACLs; without an authorizer they answer SECURITY_DISABLED."""

from typing import Any, TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    new_acl,
)
from broker_core.wire import messages as m
from broker_core.wire.served import Echo

_UNKNOWN = 0
_MatchingAcl: TypeAlias = m.DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl


def describe(context: ApiCall[m.DescribeAclsRequest]) -> m.DescribeAclsResponse | None:
    """Describe the ACLs that match a filter, grouped by resource pattern."""
    response, wanted = m.DescribeAclsResponse, _filter(context.body)
    if _is_unknown(wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        _hang_up(context)
        return None
    try:
        _require(context, Operation.DESCRIBE)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    patterns: dict[ResourcePattern, list[Acl]] = {}
    for acl in sorted(filter(wanted.matches, context.broker.metadata.acls)):
        patterns.setdefault(acl.pattern, []).append(acl)
    form = response.DescribeAclsResource
    resources = [
        form(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=[form.AclDescription(**_entry(acl)) for acl in acls],
        )
        for pattern, acls in patterns.items()
    ]
    return response(resources=resources)


def _entry(acl: Acl) -> dict[str, Any]:
    """Return the fields of an ACL that all responses have."""
    return {"principal": acl.principal, "host": acl.host, "operation": acl.operation, "permission_type": acl.permission}


def create(context: ApiCall[m.CreateAclsRequest]) -> m.CreateAclsResponse | None:
    """Create ACLs, each independently of the others; creating an existing ACL succeeds."""
    creations, form = context.body.creations, m.CreateAclsResponse.AclCreationResult
    if any(
        _is_unknown(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        for each in creations
    ):
        _hang_up(context)
        return None
    # Kafka fails before it handles the single ACLs, and has no more specific error.
    is_spoilt = any(
        each.resource_type == ResourceType.ANY
        or each.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or each.operation == Operation.ANY
        or each.permission_type == Permission.ANY
        for each in creations
    )
    results = []
    for each in creations:
        try:
            _require(context, Operation.ALTER)
            if is_spoilt:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            context.broker.metadata.create_acl(
                new_acl(
                    each.resource_type,
                    each.resource_pattern_type,
                    each.resource_name,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
            )
            results.append(form())
        except KafkaError as error:
            results.append(form(error_code=error.code, error_message=error.message or None))
    return m.CreateAclsResponse(results=results)


def delete(context: ApiCall[m.DeleteAclsRequest]) -> m.DeleteAclsResponse | None:
    """Delete the ACLs that match each filter, and return them; an ACL that matches two filters is returned twice."""
    filters, response = [_filter(each) for each in context.body.filters], m.DeleteAclsResponse
    if any(_is_unknown(each.resource_type, each.pattern_type, each.operation, each.permission) for each in filters):
        _hang_up(context)
        return None
    results, doomed = [], set()
    for each in filters:
        try:
            _require(context, Operation.ALTER)
            each.check()
        except KafkaError as error:
            results.append(response.DeleteAclsFilterResult(error_code=error.code, error_message=error.message))
            continue
        chosen = sorted(filter(each.matches, context.broker.metadata.acls))
        doomed.update(chosen)
        results.append(
            response.DeleteAclsFilterResult(error_message=None, matching_acls=[_deleted(acl) for acl in chosen])
        )
    for acl in sorted(doomed):
        context.broker.metadata.delete_acl(acl)
    return response(filter_results=results)


def _deleted(acl: Acl) -> _MatchingAcl:
    return _MatchingAcl(
        error_message=None,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        **_entry(acl),
    )


def _filter(entry: m.DescribeAclsRequest | m.DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        entry.resource_type_filter,
        entry.resource_name_filter,
        entry.pattern_type_filter,
        entry.principal_filter,
        entry.host_filter,
        entry.operation,
        entry.permission_type,
    )


def _require(context: RequestContext, operation: Operation) -> None:
    require(context, operation, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured: set authorizer.class.name")


def _is_unknown(*numbers: int) -> bool:
    """Return whether one of the numbers is UNKNOWN, which clients use for values they do not know."""
    return _UNKNOWN in numbers


def _hang_up(context: RequestContext) -> None:
    """Close the connection, as Kafka does for a request with unknown types."""
    context.hang_up(f"{context.request.api.name} contains the type UNKNOWN")


APIS = (
    api(m.DescribeAclsRequest, (1, 3), describe, "DESCRIBE CLUSTER"),
    api(m.CreateAclsRequest, (1, 3), create, "ALTER CLUSTER", echoes=(Echo("creations", "results"),)),
    api(m.DeleteAclsRequest, (1, 3), delete, "ALTER CLUSTER", echoes=(Echo("filters", "filter_results"),)),
)
