"""List what a client gets wrong by itself, with any broker: seen on `broker_core` and on Apache Kafka alike."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """Name scenarios by the beginning of their test's name, and by one of its parameters."""

    client: str
    scenario: str
    parameter: str
    reason: str


LIMITS = (
    Limit("kafka_python", "test_a_second_producer_fences_the_first", "send",
          "a fenced kafka-python takes INVALID_PRODUCER_EPOCH for something to mend, initialises its id again and "
          "aborts the transaction of its successor"),
    Limit("kafka_python", "test_one_client_fences_another", "send", "the same"),
    Limit("kafka_python", "test_under_transaction_version_1_a_second_producer_fences_the_first", "send", "the same"),
    Limit("kafka_python", "test_after_a_refused_record", "",
          "kafka-python leaves a gap in its sequence numbers after a refused record"),
    Limit("kafka_python", "test_under_transaction_version_1_later_transactions_commit_after_a_refused", "", "the same"),
    Limit("aiokafka", "test_after_a_refused_record", "",
          "aiokafka leaves a gap in its sequence numbers after a refused record"),
    Limit("aiokafka", "test_under_transaction_version_1_later_transactions_commit_after_a_refused", "", "the same"),
)


def limit_of(client: str, scenario: str, parameters: list[object]) -> str | None:
    """Return why the client fails in this scenario, if it is known to."""
    for limit in LIMITS:
        if client == limit.client and scenario.startswith(limit.scenario) and (
                not limit.parameter or limit.parameter in parameters):
            return limit.reason
    return None
