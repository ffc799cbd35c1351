"""librdkafka with exactly the rights it needs, and with one less; its admin client creates them."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.clients import DEADLINE_S, LOG_NOTHING, admin, make_consumer, make_transactional_producer
from tests.support.guarded_kafka import PASSWORD, Stage
from tests.support.waiting import wait_until

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


def as_user(stage: Stage) -> dict[str, Any]:
    return {
        "bootstrap_servers": stage.kafka.sasl_address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": stage.user,
        "sasl_password": PASSWORD,
    }


def grant(stage: Stage, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Create an ACL as an operator does, and wait until the broker lists it."""
    operator = admin(stage.kafka)
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{stage.user}", "*", operation, AclPermissionType.ALLOW
    )
    operator.create_acls([binding])[binding].result(DEADLINE_S)
    wanted = AclBindingFilter(
        kind, name, ResourcePatternType.LITERAL, f"User:{stage.user}", "*", operation, AclPermissionType.ALLOW
    )
    wait_until(lambda: operator.describe_acls(wanted).result(DEADLINE_S) == [binding], f"{binding} is known")


def producer_of(stage: Stage) -> Producer:
    return make_transactional_producer(stage.kafka, stage.id, **as_user(stage))


def code_of(error: BaseException | None) -> int:
    assert isinstance(error, KafkaException), error
    return int(error.args[0].code())


def write(stage: Stage, producer: Producer) -> None:
    """Write one record in a transaction."""
    failures: list[KafkaError] = []
    producer.begin_transaction()
    producer.produce(stage.topic, b"v", on_delivery=lambda error, _: failures.append(error) if error else None)
    producer.flush(DEADLINE_S)
    if failures:
        raise KafkaException(failures[0])
    producer.commit_transaction(DEADLINE_S)


def next_of(stage: Stage) -> tuple[int, bytes | None]:
    """Poll as a member of the group until there is a record or an error."""
    consumer: Consumer = make_consumer(stage.kafka, group=stage.group, enable_partition_eof=False, **as_user(stage))
    try:
        consumer.subscribe([stage.topic])
        message = wait_until(lambda: consumer.poll(1), "a record or an error")
        error = message.error()
        if error is None:
            consumer.commit(message, asynchronous=False)
        return (0, message.value()) if error is None else (error.code(), None)
    finally:
        consumer.close()


def test_producer_and_consumer_need_only_their_rights(stage: Stage) -> None:
    with pytest.raises(KafkaException) as refused:
        producer_of(stage)
    assert code_of(refused.value) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grant(stage, ID, stage.id, WRITE)
    with pytest.raises(KafkaException) as refused:
        write(stage, producer_of(stage))
    assert code_of(refused.value) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(stage, TOPIC, stage.topic, WRITE)
    write(stage, producer_of(stage))

    assert next_of(stage)[0] == KafkaError.GROUP_AUTHORIZATION_FAILED
    grant(stage, GROUP, stage.group, READ)
    # A user who may write sees the topic, but may not read it.
    assert next_of(stage)[0] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(stage, TOPIC, stage.topic, READ)
    assert next_of(stage) == (0, b"v")


def test_operator_lists_and_deletes_acls(stage: Stage) -> None:
    grant(stage, TOPIC, stage.topic, READ)
    grant(stage, GROUP, stage.group, READ)
    operator = admin(stage.kafka)
    mine = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{stage.user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    matching = AclBindingFilter(
        TOPIC,
        stage.topic,
        ResourcePatternType.MATCH,
        f"User:{stage.user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert {acl.name for acl in operator.describe_acls(mine).result(DEADLINE_S)} == {stage.topic, stage.group}
    deleted = operator.delete_acls([matching])[matching].result(DEADLINE_S)
    assert [acl.name for acl in deleted] == [stage.topic]
    wait_until(
        lambda: [acl.name for acl in operator.describe_acls(mine).result(DEADLINE_S)] == [stage.group],
        "one ACL is left",
    )


def test_operator_without_rights_is_refused(stage: Stage) -> None:
    settings = {name.replace("_", "."): value for name, value in as_user(stage).items()}
    client = AdminClient(settings | {"log_level": LOG_NOTHING})
    binding = AclBinding(
        TOPIC, stage.missing, ResourcePatternType.LITERAL, f"User:{stage.user}", "*", READ, AclPermissionType.ALLOW
    )
    with pytest.raises(KafkaException) as refused:
        client.create_acls([binding])[binding].result(DEADLINE_S)
    assert code_of(refused.value) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
