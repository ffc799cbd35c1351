"""SCRAM with a delegation token (KIP-48): the token's id and HMAC are the user name and password."""

from collections.abc import Callable

from kafka.net.sasl.scram import SaslMechanismScram

from spark_eos.options.client import ClientOptions


def delegation_token_mechanism(options: ClientOptions) -> Callable[[str], SaslMechanismScram]:
    def make(host: str) -> SaslMechanismScram:
        made = SaslMechanismScram(
            sasl_plain_username=options.sasl_username,
            sasl_plain_password=options.sasl_password,
            sasl_mechanism=options.sasl_mechanism,
            security_protocol=options.security_protocol,
        )
        # The extension follows the nonce in the client's first message, and the broker's answer repeats the nonce
        # alone; kafka-python has no extensions, so only the message is changed.
        client = made._scram_client
        first_message = client.first_message

        def with_extension() -> bytes:
            message: bytes = first_message() + b",tokenauth=true"
            client.auth_message += b",tokenauth=true"
            return message

        client.first_message = with_extension
        return made

    return make
