"""The APIs of authentication, of the users of SCRAM (KIP-554), and of ACLs.

SaslHandshake names a mechanism, and SaslAuthenticate carries its tokens (KIP-43, KIP-152, KIP-368). Without an
authorizer the APIs of ACLs answer SECURITY_DISABLED.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.controller import MOST_RECORDS, TOO_LARGE
from broker_core.broker.metadata import ClusterMetadata
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
from broker_core.security.sasl import AuthenticationFailed, SaslSession, SaslState
from broker_core.security.sasl_passwords import (
    SCRAM_MECHANISMS,
    check_new_credential,
    check_user_and_mechanism,
    credential_of_salted,
)
from broker_core.types import Frame
from broker_core.wire import messages as m
from broker_core.wire.error_responses import Fields, response_to_each
from broker_core.wire.framing import MalformedFrame, UnsupportedVersion, api_key_of, decode_request, encode_response
from broker_core.wire.layout import API_VERSIONS_KEY
from broker_core.wire.served import SASL_HANDSHAKE_KEY, Secrets, ServedApi, echo


def handshake(context: ApiCall[m.SaslHandshakeRequest]) -> m.SaslHandshakeResponse | None:
    """Choose a mechanism; a client that needs none, or may not change it now, gets an error and stays connected."""
    response, session = m.SaslHandshakeResponse, context.sasl
    if session is None or (session.is_open and not session.may_begin_again(context.now_ms)):
        return response(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(session.settings.mechanisms)
    try:
        session.handshake(context.body.mechanism, context.version, context.now_ms)
    except AuthenticationFailed as failure:
        context.answer(response(error_code=failure.code, mechanisms=mechanisms), failure.message)
        return None
    return response(mechanisms=mechanisms)


def authenticate(context: ApiCall[m.SaslAuthenticateRequest]) -> m.SaslAuthenticateResponse | None:
    response, session = m.SaslAuthenticateResponse, context.sasl
    if session is None or session.is_open:
        return response(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        reply, lifetime_ms = session.evaluate(bytes(context.body.auth_bytes), context.now_ms)
    except AuthenticationFailed as failure:
        context.answer(response(error_code=failure.code, error_message=failure.message), failure.message)
        return None
    return response(auth_bytes=reply, session_lifetime_ms=lifetime_ms)


def answer_out_of_turn(frame: bytes, session: SaslSession, served: Mapping[int, ServedApi]) -> Frame | None:
    """Return the response to a request that arrives during an exchange; None for most.

    Kafka answers any request there in its API's own form; before the exchange it answers none. Requests that are not
    about authentication are not decoded here.
    """
    response = _OUT_OF_TURN.get(api_key_of(frame)) if session.state is SaslState.EXCHANGE else None
    if response is None:
        return None
    try:
        return encode_response(decode_request(frame, served), response())
    except (MalformedFrame, UnsupportedVersion):
        return None


_OUT_OF_TURN: Mapping[int, Callable[[], m.ApiMessage]] = {
    SASL_HANDSHAKE_KEY: lambda: m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]),
    API_VERSIONS_KEY: lambda: m.ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[]),
}


_Deletion: TypeAlias = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion: TypeAlias = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Described: TypeAlias = m.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def alter_users(context: ApiCall[m.AlterUserScramCredentialsRequest]) -> m.AlterUserScramCredentialsResponse:
    """Set and delete credentials, one user at a time; a user named twice is not changed."""
    body, response = context.body, m.AlterUserScramCredentialsResponse
    changes: list[_Deletion | _Upsertion] = [*body.deletions, *body.upsertions]
    named = Counter(change.name for change in changes)
    verdicts: dict[str, tuple[int, str | None]] = {}
    for change in changes:
        try:
            require(context, Operation.ALTER, ResourceType.CLUSTER)
            if named[change.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            if isinstance(change, _Deletion):
                _delete(context.broker.metadata, change)
            else:
                _upsert(context.broker.metadata, change)
            verdicts[change.name] = (ErrorCode.NONE, None)
        except KafkaError as error:
            verdicts[change.name] = (error.code, error.message)
    return response(
        results=[
            response.AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name, (code, message) in verdicts.items()
        ]
    )


def _delete(metadata: ClusterMetadata, change: _Deletion) -> None:
    check_user_and_mechanism(change.name, change.mechanism)
    mechanism = SCRAM_MECHANISMS[change.mechanism]
    if (mechanism, change.name) not in metadata.scram:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    metadata.set_scram(mechanism, change.name, None)


def _upsert(metadata: ClusterMetadata, change: _Upsertion) -> None:
    salt, salted_password = bytes(change.salt), bytes(change.salted_password)
    check_new_credential(change.name, change.mechanism, change.iterations)
    mechanism = SCRAM_MECHANISMS[change.mechanism]
    metadata.set_scram(
        mechanism, change.name, credential_of_salted(mechanism, salted_password, salt, change.iterations)
    )


def describe_users(context: ApiCall[m.DescribeUserScramCredentialsRequest]) -> m.DescribeUserScramCredentialsResponse:
    """Describe users' credentials: mechanism and iterations, not keys or salts."""
    response = m.DescribeUserScramCredentialsResponse
    try:
        require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return response(
            error_code=error.code,
            error_message=error.message,
            results=[_Described(error_code=error.code, error_message=error.message) for _ in context.body.users or ()],
        )
    metadata = context.broker.metadata
    named = Counter(user.name for user in context.body.users or ())
    users = named or Counter({user_name: 1 for _, user_name in metadata.scram})
    return response(results=[_describe(metadata, name, count) for name, count in users.items()])


def _describe(metadata: ClusterMetadata, name: str, count: int) -> _Described:
    infos = [
        _Described.CredentialInfo(mechanism=number, iterations=metadata.scram[mechanism, name].iterations)
        for number, mechanism in SCRAM_MECHANISMS.items()
        if (mechanism, name) in metadata.scram
    ]
    code, message = ErrorCode.NONE, ""
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return _Described(user=name, error_code=code, error_message=message, credential_infos=[] if count > 1 else infos)


_UNKNOWN = 0
_TOO_MANY_TO_DELETE = f"Cannot remove more than {MOST_RECORDS} acls in a single delete operation."
_MatchingAcl: TypeAlias = m.DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl


def describe_acls(context: ApiCall[m.DescribeAclsRequest]) -> m.DescribeAclsResponse | None:
    """Describe the ACLs that match a filter, grouped by resource pattern."""
    response, wanted = m.DescribeAclsResponse, _filter(context.body)
    if _hangs_up(context, (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)):
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


def create_acls(context: ApiCall[m.CreateAclsRequest]) -> m.ApiMessage | None:
    """Create ACLs, each independently of the others; creating an existing ACL succeeds."""
    creations = context.body.creations
    if any(
        _hangs_up(context, (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type))
        for each in creations
    ):
        return None
    # Kafka fails before it handles the single ACLs, and has no more specific error.
    is_spoilt = any(
        each.resource_type == ResourceType.ANY
        or each.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or each.operation == Operation.ANY
        or each.permission_type == Permission.ANY
        for each in creations
    )

    new: dict[Acl, None] = {}

    def create(each: m.CreateAclsRequest.AclCreation) -> Fields:
        _require(context, Operation.ALTER)
        if is_spoilt:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        pattern = (each.resource_type, each.resource_pattern_type, each.resource_name)
        acl = new_acl(*pattern, each.principal, each.host, each.operation, each.permission_type)
        if acl not in context.broker.metadata.acls:
            new[acl] = None
        # Kafka answers an empty text here, and null in the answer to DeleteAcls.
        return {"error_message": ""}

    response = response_to_each(context.request, create)
    if len(new) > MOST_RECORDS:
        return _refused(context, KafkaError(ErrorCode.POLICY_VIOLATION, TOO_LARGE))
    for acl in new:
        context.broker.metadata.create_acl(acl)
    return response


def _refused(context: RequestContext, error: KafkaError) -> m.ApiMessage:
    """Return the response to a request that is too large, which Kafka refuses as a whole."""

    def refuse(_: object) -> Fields:
        raise error

    return response_to_each(context.request, refuse)


def delete_acls(context: ApiCall[m.DeleteAclsRequest]) -> m.ApiMessage | None:
    """Delete the ACLs that match each filter, and return them; an ACL that matches two filters is returned twice."""
    if any(
        _hangs_up(context, (each.resource_type, each.pattern_type, each.operation, each.permission))
        for each in map(_filter, context.body.filters)
    ):
        return None
    doomed: set[Acl] = set()

    def choose(entry: m.DeleteAclsRequest.DeleteAclsFilter) -> Fields:
        _require(context, Operation.ALTER)
        wanted = _filter(entry)
        wanted.check()
        chosen = sorted(filter(wanted.matches, context.broker.metadata.acls))
        doomed.update(chosen)
        return {"matching_acls": [_deleted(acl) for acl in chosen]}

    response = response_to_each(context.request, choose)
    if len(doomed) > MOST_RECORDS:
        return _refused(context, KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY_TO_DELETE))
    for acl in sorted(doomed):
        context.broker.metadata.delete_acl(acl)
    return response


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


def _hangs_up(context: RequestContext, numbers: Collection[int]) -> bool:
    """Close the connection, as Kafka does, if a number is UNKNOWN, which clients use for values they do not know."""
    if _UNKNOWN in numbers:
        context.hang_up(f"{context.request.api.name} contains the type UNKNOWN")
    return _UNKNOWN in numbers


APIS = (
    api(m.SaslHandshakeRequest, (0, 1), handshake),
    api(m.SaslAuthenticateRequest, (0, 2), authenticate, secrets=Secrets.ASKED),
    api(
        m.DescribeUserScramCredentialsRequest,
        (0, 0),
        describe_users,
        "DESCRIBE CLUSTER",
        echoes=echo("users", "results", user="name"),
    ),
    api(
        m.AlterUserScramCredentialsRequest,
        (0, 0),
        alter_users,
        "ALTER CLUSTER",
        echoes=(echo("deletions", "results", user="name"), echo("upsertions", "results", user="name")),
        secrets=Secrets.ASKED,
    ),
    api(m.DescribeAclsRequest, (1, 3), describe_acls, "DESCRIBE CLUSTER"),
    api(m.CreateAclsRequest, (1, 3), create_acls, "ALTER CLUSTER", echoes=echo("creations", "results")),
    api(m.DeleteAclsRequest, (1, 3), delete_acls, "ALTER CLUSTER", echoes=echo("filters", "filter_results")),
)
