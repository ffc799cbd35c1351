"""The Kafka clients of this process, one for all that is reached by the same settings."""

from typing import Final

from spark_eos.client.connection import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.sink.process_cache import IDLE_SECONDS, ProcessCache

# Longer than anything that was made with a client is kept, since that would connect a closed one again.
_clients: Final[ProcessCache[ClientOptions, KafkaClient]] = ProcessCache(3 * IDLE_SECONDS, KafkaClient.close)


def client_of(options: ClientOptions) -> KafkaClient:
    """Give this process's client for these settings, with the connections that it has."""
    return _clients.get(options, lambda: KafkaClient(options))
