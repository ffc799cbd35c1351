"""The APIs of delegation tokens (KIP-48, KIP-373), which require `delegation.token.secret.key`."""

import base64
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, refusal
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.delegation_tokens.records import DelegationToken, Tokens, hmac_of, later, set_token
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.principals import ANONYMOUS, Principal
from broker_core.wire import messages as m
from broker_core.wire.served import Secrets

_USER = "User"
_NO_TIME = -1


def _may_manage_tokens(context: RequestContext) -> bool:
    """Return whether the client is authenticated, and not with a token."""
    if context.sasl is not None:
        return not context.sasl.has_token
    return context.principal != ANONYMOUS


def create(context: ApiCall[m.CreateDelegationTokenRequest]) -> m.CreateDelegationTokenResponse:
    body, requester = context.body, context.principal
    owner = requester
    # Earlier versions have no owner.
    if context.version >= 3 and body.owner_principal_name:
        kind = body.owner_principal_type
        owner = Principal(_USER if kind is None else kind, body.owner_principal_name)
    renewers = tuple(Principal(each.principal_type, each.principal_name) for each in body.renewers)
    code = _why_not_created(context, owner, renewers)
    if code is not ErrorCode.NONE:
        # As in Kafka, the controller, which knows the setting, answers other times than the broker before it.
        no_time = 0 if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else _NO_TIME
        return _created(code, DelegationToken("", owner, requester, renewers, no_time, no_time, no_time), b"")
    config, now_ms = context.broker.config, context.now_ms
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if body.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, body.max_lifetime_ms)
    max_ms = later(now_ms, lifetime_ms)
    expires_ms = min(max_ms, later(now_ms, config.delegation_token_expiry_time_ms))
    token_id = _printed(context.broker.controller.new_uuid())
    while token_id.startswith("-"):
        # A command line would take it for an option; Kafka draws again too.
        token_id = _printed(context.broker.controller.new_uuid())
    token = DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)
    set_token(context.broker.metadata, token_id, token)
    return _created(ErrorCode.NONE, token, hmac_of(config.delegation_token_secret_key, token_id))


def _printed(uuid: UUID) -> str:
    """Return a UUID in Kafka's form: 22 URL-safe characters of base64."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def _why_not_created(context: RequestContext, owner: Principal, renewers: Iterable[Principal]) -> ErrorCode:
    if not _may_manage_tokens(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if owner != context.principal:
        code = refusal(context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        if code is not ErrorCode.NONE:
            return code
    if any(renewer.kind != _USER for renewer in renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if not context.broker.config.delegation_token_secret_key:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.NONE


def _created(code: ErrorCode, token: DelegationToken, password: bytes) -> m.CreateDelegationTokenResponse:
    return m.CreateDelegationTokenResponse(
        error_code=code,
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=password,
    )


def renew(context: ApiCall[m.RenewDelegationTokenRequest]) -> m.ApiMessage:
    """Let a token expire later, at most at the end of its lifetime."""

    def change() -> int:
        token = _changeable(context)
        if token.has_expired(context.now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_renewer(context, token)
        period_ms = context.broker.config.delegation_token_expiry_time_ms
        if context.body.renew_period_ms > 0:
            period_ms = min(period_ms, context.body.renew_period_ms)
        return _set_expiration(context, token, period_ms)

    return _changed(context, change)


def expire(context: ApiCall[m.ExpireDelegationTokenRequest]) -> m.ApiMessage:
    """Let a token expire after a period; a negative one deletes it at once."""

    def change() -> int:
        period_ms, token = context.body.expiry_time_period_ms, _changeable(context)
        _check_renewer(context, token)
        if period_ms < 0:
            set_token(context.broker.metadata, token.token_id, None)
            return context.now_ms
        if token.has_expired(context.now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return _set_expiration(context, token, period_ms)

    return _changed(context, change)


def _changed(context: RequestContext, change: Callable[[], int]) -> m.ApiMessage:
    code = ErrorCode.NONE
    try:
        expires_ms = change()
    except KafkaError as error:
        code = error.code
        # The broker answers -1, and the controller behind it 0.
        expires_ms = _NO_TIME if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0
    changed: m.ApiMessage = context.request.api.response(error_code=code, expiry_timestamp_ms=expires_ms)
    return changed


def _changeable(context: ApiCall[m.ExpireDelegationTokenRequest | m.RenewDelegationTokenRequest]) -> DelegationToken:
    if not _may_manage_tokens(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = context.broker.config.delegation_token_secret_key
    if not secret_key:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    wanted = bytes(context.body.hmac)
    for token in context.broker.metadata.state(Tokens).values():
        if hmac.compare_digest(hmac_of(secret_key, token.token_id), wanted):
            return token
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _check_renewer(context: RequestContext, token: DelegationToken) -> None:
    if not token.may_be_renewed_by(context.principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _set_expiration(context: RequestContext, token: DelegationToken, period_ms: int) -> int:
    expires_ms = min(token.max_ms, later(context.now_ms, period_ms))
    set_token(context.broker.metadata, token.token_id, replace(token, expires_ms=expires_ms))
    return expires_ms


def describe(context: ApiCall[m.DescribeDelegationTokenRequest]) -> m.DescribeDelegationTokenResponse:
    """Describe the tokens of some owners, or of all, that the client may describe."""
    response, secret_key = m.DescribeDelegationTokenResponse, context.broker.config.delegation_token_secret_key
    code = ErrorCode.NONE
    if not _may_manage_tokens(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif not secret_key:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    tokens = [] if code else [_described(token, secret_key) for token in _found(context)]
    return response(error_code=code, tokens=tokens)


def _found(context: ApiCall[m.DescribeDelegationTokenRequest]) -> Iterator[DelegationToken]:
    wanted = context.body.owners
    owners = None if wanted is None else [Principal(each.principal_type, each.principal_name) for each in wanted]
    for token in context.broker.metadata.state(Tokens).values():
        if owners is not None and not any(token.belongs_to(owner) for owner in owners):
            continue
        if (
            token.belongs_to(context.principal)
            or is_allowed(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or is_allowed(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        ):
            yield token


def _described(token: DelegationToken, secret_key: str) -> m.DescribeDelegationTokenResponse.DescribedDelegationToken:
    form = m.DescribeDelegationTokenResponse.DescribedDelegationToken
    return form(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(secret_key, token.token_id),
        renewers=[
            form.DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )


APIS = (
    # For another owner than the client; renewing and expiring are for owner and renewers.
    api(m.CreateDelegationTokenRequest, (1, 3), create, "CREATE_TOKENS USER", secrets=Secrets.ANSWERED),
    api(m.RenewDelegationTokenRequest, (1, 2), renew, secrets=Secrets.ASKED),
    api(m.ExpireDelegationTokenRequest, (1, 2), expire, secrets=Secrets.ASKED),
    api(
        m.DescribeDelegationTokenRequest,
        (1, 3),
        describe,
        "DESCRIBE DELEGATION_TOKEN or DESCRIBE_TOKENS USER or nothing",
        secrets=Secrets.ANSWERED,
    ),
)
