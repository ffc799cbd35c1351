"""The rights of the principal, as far as brokers report them, beside the rights that each role needs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from spark_eos.admin.doctor_findings import TRIAL_TIMEOUT_MS, Examination
from spark_eos.admin.rights import CLUSTER, DATA, DECISIONS, EVERY, GROUP, ID, ITSELF, ONE_ID, PREFIX, TOPIC, Right
from spark_eos.client.allowed_operations import (
    ACLOperation,
    ResourceType,
    cluster_operations,
    group_operations,
    topic_operations,
)
from spark_eos.client.inspection import describe_transactions, sees_every_id
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import TransactionIdentity, init_producer_id
from spark_eos.errors import AuthorizationError

# The operations that are allowed on a resource: a topic by its name, other resources by their place in a role's rights.
# A resource that is missing here could not be determined.
Allowed: TypeAlias = dict[tuple[ResourceType, str], frozenset[int]]


def allowed_operations(client: KafkaClient, examined: Examination) -> tuple[Allowed, TransactionIdentity | None]:
    """Return the allowed operations of each resource that can be determined, and the probe's identity if it has one."""
    topics = topic_operations(client, list(dict.fromkeys([*examined.topics, examined.decision_topic])))
    found: Allowed = {(TOPIC, name): operations for name, operations in topics.items()}
    for place, operations in {
        (CLUSTER, ITSELF): cluster_operations(client),
        (GROUP, PREFIX): group_operations(client, examined.probe),
    }.items():
        if operations is not None:
            found[place] = operations
    of_ids, probe = _allowed_of_ids(client, examined)
    return found | of_ids, probe


def _allowed_of_ids(client: KafkaClient, examined: Examination) -> tuple[Allowed, TransactionIdentity | None]:
    """Try operations on ids, since brokers do not report which ones they allow."""
    every = frozenset({ACLOperation.DESCRIBE}) if sees_every_id(client) else frozenset()
    own: set[int] = set()
    probe = None
    # An id that may not even be described may not be written to.
    with suppress(AuthorizationError):
        describe_transactions(client, [examined.probe])
        own.add(ACLOperation.DESCRIBE)
        if examined.is_read_only:
            return {(ID, EVERY): every}, None
        probe = init_producer_id(client, examined.probe, transaction_timeout_ms=TRIAL_TIMEOUT_MS)
        own.add(ACLOperation.WRITE)
    return {(ID, EVERY): every, (ID, PREFIX): frozenset(own), (ID, ONE_ID): frozenset(own)}, probe


class Compared(NamedTuple):
    """Rights that are missing, and rights that could not be determined, each with the name of its resource."""

    missing: Sequence[tuple[Right, str]]
    unknown: Sequence[tuple[Right, str]]


def compared(rights: Sequence[Right], examined: Examination, allowed: Allowed) -> Compared:
    """Compare the rights of a role with the allowed operations."""
    missing, unknown = [], []
    for right in rights:
        if right.operation is ACLOperation.CREATE:
            # The check of the decision topic tries it.
            continue
        names = {DATA: examined.topics or ("TOPIC",), DECISIONS: (examined.decision_topic,)}.get(
            right.place, (right.place,)
        )
        for name in names:
            operations = allowed.get((right.resource_type, name))
            shown = {PREFIX: f"{examined.prefix}.", ONE_ID: f"{examined.prefix}.", EVERY: "*"}.get(name, name)
            if operations is None:
                unknown.append((right, shown))
            elif right.operation not in operations:
                missing.append((right, shown))
    return Compared(missing, unknown)


def list_text(missing: Iterable[tuple[Right, str]]) -> str:
    """Name rights and their resources."""
    return ", ".join(
        f"{right.operation.name} on the {right.kind}{'' if right.place == ITSELF else f' {name}'}"
        for right, name in missing
    )


def grant_commands(missing: Iterable[tuple[Right, str]]) -> str:
    """Return the commands of Apache Kafka's tool that grant these rights, one for each resource."""
    operations: dict[str, list[str]] = {}
    for right, name in missing:
        operations.setdefault(_resource(right, name), []).append(f"--operation {right.operation.name}")
    return "; ".join(
        f"kafka-acls.sh --add --allow-principal User:NAME {' '.join(words)} {resource}"
        for resource, words in operations.items()
    )


def _resource(right: Right, name: str) -> str:
    if right.place == ITSELF:
        return "--cluster"
    option = f"--{right.kind.replace(' ', '-')}"
    if right.place in (PREFIX, ONE_ID):
        return f"{option} {name} --resource-pattern-type prefixed"
    return f"{option} '*'" if name == "*" else f"{option} {name}"
