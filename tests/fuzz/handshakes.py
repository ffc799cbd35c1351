"""Fuzz targets for the first responses to a client: the versions of the APIs, and the steps of SASL."""

from collections.abc import Sequence
from typing import Any

from broker_core.wire import messages as m
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.oauth import OAuthOptions
from tests.fuzz.answers import HEADER, framed
from tests.fuzz.memory_network import client_of

# Of the same length as a client's nonce, which replaces it.
NONCE = b"n" * 32
MECHANISMS: Sequence[dict[str, Any]] = (
    {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secret"},
    {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": "secret"},
    {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": "secret"},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth": OAuthOptions(unsigned_subject="alice")},
)


def parted(answers: Sequence[bytes]) -> bytes:
    """Return the parts, each with a length of two bytes in front."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in answers)


def parts(data: bytes) -> list[bytes]:
    """Undo `parted`; the last part may be incomplete."""
    found = []
    while data:
        end = 2 + int.from_bytes(data[:2], "big")
        found.append(data[2:end])
        data = data[end:]
    return found


def feed_handshake(data: bytes) -> None:
    """Connect to a broker whose first responses are the parts of the input; the first byte selects the mechanism.

    Later requests get the last part.
    """
    answers = parts(data[1:])
    if not answers:
        return
    sent = 0
    nonce = NONCE

    def answer(request: bytes) -> bytes:
        nonlocal sent, nonce
        _, _, correlation_id = HEADER.unpack_from(request)
        if (start := request.find(b",r=")) > 0:
            nonce = request[start + 3 : start + 3 + len(NONCE)]
        part = answers[min(sent, len(answers) - 1)]
        sent += 1
        return framed(correlation_id, part.replace(NONCE, nonce))

    options = MECHANISMS[data[0] % len(MECHANISMS)]
    with client_of(answer, security_protocol="SASL_PLAINTEXT", **options) as client:
        _connect(client)


def _connect(client: KafkaClient) -> None:
    client.connect()
    client.brokers()


def handshake_seeds() -> list[bytes]:
    """Return for each mechanism the responses of a broker that accepts the client and returns its metadata."""
    versions = m.ApiVersionsResponse(
        error_code=0,
        api_keys=[
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=version)
            for key, version in ((3, 13), (17, 1), (18, 4), (36, 1))
        ],
    ).encode(version=4)
    brokers = m.MetadataResponse(
        throttle_time_ms=0,
        cluster_id="c",
        controller_id=1,
        topics=[],
        brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="test", port=9092, rack=None)],
    ).encode(version=13)
    found = []
    for number, options in enumerate(MECHANISMS):
        name = options["sasl_mechanism"]
        tokens = (b"r=" + NONCE + b"more,s=c2FsdA==,i=4096", b"v=c2lnbmF0dXJl") if "SCRAM" in name else (b"",)
        handshake = m.SaslHandshakeResponse(error_code=0, mechanisms=[name]).encode(version=1)
        steps = [
            m.SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=0
            ).encode(version=1)
            for token in tokens
        ]
        found.append(bytes([number]) + parted([bytes(each) for each in (versions, handshake, *steps, b"\0" + brokers)]))
    return found
