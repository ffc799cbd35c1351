"""What each client does not support or does wrong, with `broker_core` and Apache Kafka alike."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A limit of a client in scenarios, by the beginning of the test's name, and by one of its parameters.

    The client cannot express the scenario, which is skipped; or it fails, always or, because of a race, in most runs.
    """

    client: str
    scenario: str
    parameter: object
    reason: str
    is_skipped: bool = False
    is_certain: bool = True


ANY = object()
_FENCED = (
    "a fenced kafka-python treats INVALID_PRODUCER_EPOCH as recoverable, initializes its id again and "
    "aborts the transaction of its successor"
)
_LOSES_ITS_BROKER = (
    "Apache Kafka that shuts down lists no brokers in Metadata: librdkafka 2.16 forgets its only broker, after which "
    "its consumer may stand still or its send_offsets_to_transaction never return"
)


def _fails(client: str, scenario: str, reason: str, parameter: object = ANY, *, is_certain: bool = True) -> Limit:
    return Limit(client, scenario, parameter, reason, is_certain=is_certain)


def _cannot(client: str, reason: str, *scenarios: str, parameter: object = ANY) -> tuple[Limit, ...]:
    return tuple(Limit(client, scenario, parameter, reason, is_skipped=True) for scenario in scenarios)


LIMITS = (
    *(
        _fails("kafka_python", scenario, _FENCED, "send", is_certain=False)
        for scenario in (
            "test_second_producer_fences_the_first",
            "test_one_client_fences_another",
            "test_second_producer_under_transaction_version_1_fences_the_first",
        )
    ),
    *(
        _fails(client, scenario, f"{client.replace('_', '-')} leaves a gap in its sequences after a refused record")
        for client in ("kafka_python", "aiokafka")
        for scenario in (
            "test_later_transactions_commit_after_a_refused_record_and_an_abort",
            "test_later_transactions_commit_after_a_refused_record_under_transaction_version_1",
        )
    ),
    *_cannot(
        "confluent",
        _LOSES_ITS_BROKER,
        "test_calls_time_out_while_the_broker_is_down_and_can_be_resumed",
        "test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order",
        parameter="apache",
    ),
    *_cannot(
        "kafka_python",
        "commit, abort and sending offsets have no timeout",
        "test_calls_time_out_while_the_broker_is_down_and_can_be_resumed",
    ),
    *_cannot(
        "aiokafka",
        "commit, abort and sending offsets have no timeout, and start() cannot be repeated",
        "test_calls_time_out_while_the_broker_is_down_and_can_be_resumed",
        "test_init_times_out_while_the_broker_is_down_and_can_be_resumed",
        "test_id_is_initialized_once",
    ),
    *_cannot(
        "kafkajs",
        "a failed call cannot be repeated, and there is none for InitProducerId alone",
        "test_calls_time_out_while_the_broker_is_down_and_can_be_resumed",
        "test_init_times_out_while_the_broker_is_down_and_can_be_resumed",
        "test_id_is_initialized_once",
    ),
    *(
        each
        for client in ("aiokafka", "kafkajs")
        for each in (
            *_cannot(
                client,
                "offsets are sent with the group's name alone: no leader epoch, no member",
                "test_committed_leader_epoch_is_returned",
                "test_offsets_of_a_replaced_member_are_refused_and_of_the_current_one_committed",
            ),
            *_cannot(
                client,
                "offsets are sent with the group's name alone: no leader epoch, no member",
                "test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order",
                "test_client_restarts_during_a_copy_and_every_input_is_copied_once_in_order",
                parameter="group metadata",
            ),
        )
    ),
    *_cannot(
        "aiokafka",
        "there is no setting for requests in flight: one for each partition always",
        "test_abort_is_followed_by_a_commit_with_one_request_in_flight",
    ),
    *_cannot(
        "kafkajs",
        "only its consumer looks up offsets, and does not report them",
        "test_end_offset_of_read_committed_is_the_last_stable_offset",
        "test_timestamp_lookup_stops_at_the_last_stable_offset",
    ),
    *_cannot(
        "kafkajs",
        "a transaction is an object, which cannot be ended before it exists",
        "test_calls_in_the_wrong_order_are_refused_without_effect",
    ),
    *_cannot("kafkajs", "there are no static members", "test_killed_static_member_is_replaced_during_its_transaction"),
    *_cannot(
        "kafkajs", "there is no call that adds a partition alone", "test_partition_added_without_records_is_committed"
    ),
    *_cannot(
        "confluent", "there is no call that adds a partition alone", "test_partition_added_without_records_is_committed"
    ),
    *_cannot(
        "java",
        "under transaction version 2 no partition is added without a record",
        "test_partition_added_without_records_is_committed",
    ),
)


def limit_of(client: str, scenario: str, parameters: list[object]) -> Limit | None:
    """Return why the client is skipped or fails in this scenario, if there is a limit."""
    for limit in LIMITS:
        if (
            client == limit.client
            and scenario.startswith(limit.scenario)
            and (limit.parameter is ANY or limit.parameter in parameters)
        ):
            return limit
    return None
