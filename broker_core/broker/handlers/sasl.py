"""SaslHandshake, which names a mechanism, and SaslAuthenticate, which carries its tokens (KIP-43, KIP-152, KIP-368)."""

from collections.abc import Callable, Mapping

from broker_core.broker.api import api
from broker_core.broker.request_context import ApiCall
from broker_core.errors import ErrorCode
from broker_core.security.sasl import AuthenticationFailed, SaslSession, SaslState
from broker_core.types import Frame
from broker_core.wire import messages as m
from broker_core.wire.framing import MalformedFrame, UnsupportedVersion, api_key_of, decode_request, encode_response
from broker_core.wire.layout import API_VERSIONS_KEY
from broker_core.wire.served import SASL_HANDSHAKE_KEY, Secrets, ServedApi


def handshake(context: ApiCall[m.SaslHandshakeRequest]) -> m.SaslHandshakeResponse | None:
    """Choose a mechanism; a client that needs none, or may not change it now, gets an error and stays connected."""
    response, session = m.SaslHandshakeResponse, context.sasl
    if session is None or (session.is_open and not session.may_begin_again(context.now_ms)):
        return response(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(session.settings.mechanisms)
    try:
        session.handshake(context.body.mechanism, context.version, context.now_ms)
    except AuthenticationFailed as failure:
        context.refuse(response(error_code=failure.code, mechanisms=mechanisms), failure.message)
        return None
    return response(mechanisms=mechanisms)


def authenticate(context: ApiCall[m.SaslAuthenticateRequest]) -> m.SaslAuthenticateResponse | None:
    """Exchange tokens with the client until it is authenticated or refused."""
    response, session = m.SaslAuthenticateResponse, context.sasl
    if session is None or session.is_open:
        return response(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        reply, lifetime_ms = session.evaluate(bytes(context.body.auth_bytes), context.now_ms)
    except AuthenticationFailed as failure:
        context.refuse(response(error_code=failure.code, error_message=failure.message), failure.message)
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

APIS = (
    api(m.SaslHandshakeRequest, (0, 1), handshake),
    api(m.SaslAuthenticateRequest, (0, 2), authenticate, secrets=Secrets.ASKED),
)
