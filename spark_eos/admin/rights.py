"""The rights that each role needs, as ACLs.

`docs/security/access-control.md` shows them, tests grant exactly them, and `eos-kafka doctor` looks for rights that are
missing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from spark_eos.client.allowed_operations import (
    ACLOperation,
    ResourceType,
    cluster_operations,
    group_operations,
    topic_operations,
)
from spark_eos.client.inspection import describe_transactions, sees_every_id
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import AuthorizationError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.sink.driver.preflight import PROBE

TOPIC, GROUP, CLUSTER, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
# The table's placeholders for the names of a query.
DATA: Final = "the data topics"
DECISIONS: Final = "the decision topic"
PREFIX: Final = "names that begin with `{prefix}.`"
EVERY: Final = "all (`*`)"
ONE_ID: Final = "the id"
READER_GROUP: Final = "the group"
ITSELF: Final = "itself"


@dataclass(frozen=True)
class Right:
    """One ACL of a role and its purpose."""

    operation: ACLOperation
    resource_type: ResourceType
    place: str
    purpose: str

    @property
    def kind(self) -> str:
        return str(self.resource_type.name).lower().replace("_", " ")


_OWN_IDS: Final = Right(ACLOperation.WRITE, ID, PREFIX, "its transactions")
_SEE_DECISIONS: Final = Right(ACLOperation.READ, TOPIC, DECISIONS, "decisions of earlier runs")
_PUT_DECISIONS: Final = Right(ACLOperation.WRITE, TOPIC, DECISIONS, "decisions")
_POINTER: Final = Right(ACLOperation.READ, GROUP, PREFIX, "the pointer to the newest decision")
_SEE_FATE: Final = Right(
    ACLOperation.READ, TOPIC, DATA, "recovery, where only the log says what became of a transaction"
)
_SEE_EVERY_ID: Final = Right(ACLOperation.DESCRIBE, ID, EVERY, "to tell a live transaction from one that hangs")
_SEE_PARTITION: Final = Right(ACLOperation.READ, TOPIC, DATA, "what its partitions have open")

# The role fails without any one of them.
ROLES: Final[Mapping[str, Sequence[Right]]] = {
    "sink, task": (
        _OWN_IDS,
        Right(ACLOperation.WRITE, TOPIC, DATA, "the rows"),
        Right(ACLOperation.DESCRIBE, GROUP, PREFIX, "the pointer to the newest decision"),
    ),
    "sink, driver": (
        _OWN_IDS,
        Right(ACLOperation.READ, TOPIC, DATA, f"{_SEE_FATE.purpose}; whether a new leader still has the rows"),
        _SEE_DECISIONS,
        _PUT_DECISIONS,
        _POINTER,
    ),
    "source, driver": (Right(ACLOperation.DESCRIBE, TOPIC, DATA, "partitions and offsets"),),
    "source, task": (Right(ACLOperation.READ, TOPIC, DATA, "the rows"),),
    "`decisions list`, `show`": (
        Right(ACLOperation.DESCRIBE, ID, PREFIX, "the fate of each transaction"),
        _SEE_FATE,
        _SEE_DECISIONS,
    ),
    "`decisions complete`, `abort`": (_OWN_IDS, _SEE_FATE, _SEE_DECISIONS, _PUT_DECISIONS, _POINTER),
    "`transactions list`": (
        Right(ACLOperation.DESCRIBE, ID, EVERY, "the complete list; ids without it are left out, with a warning"),
    ),
    "`transactions describe`": (Right(ACLOperation.DESCRIBE, ID, ONE_ID, "the answer"),),
    "`transactions describe-producers`": (_SEE_PARTITION,),
    "`transactions find-hanging`": (_SEE_PARTITION, _SEE_EVERY_ID),
    "`transactions abort`": (_SEE_PARTITION, _SEE_EVERY_ID, Right(ACLOperation.ALTER, CLUSTER, ITSELF, "the marker")),
    "`transactions force-terminate`": (Right(ACLOperation.WRITE, ID, ONE_ID, "the end"),),
    "`timeline`": (_SEE_PARTITION,),
    "`watch`": (Right(ACLOperation.DESCRIBE, TOPIC, DATA, "partitions and offsets"),),
}

# Optional rights: without them the role works and reports what it does instead.
OPTIONAL: Final[Mapping[str, Sequence[Right]]] = {
    "sink, task": (
        Right(ACLOperation.READ, TOPIC, DECISIONS, "without it rows that are decided already are written and dropped"),
        Right(ACLOperation.READ, TOPIC, DATA, "with the one before: recovery, as below"),
    ),
    "sink, driver": (
        Right(ACLOperation.CREATE, TOPIC, DECISIONS, "only where the topic is missing"),
        Right(ACLOperation.DESCRIBE_CONFIGS, TOPIC, DECISIONS, "to refuse a topic that would forget decisions"),
        Right(
            ACLOperation.DESCRIBE_CONFIGS,
            CLUSTER,
            ITSELF,
            "the longest `transactionTimeout`; without it the default is 60 s; whether brokers verify transactions",
        ),
        Right(ACLOperation.DESCRIBE_CONFIGS, TOPIC, DATA, "to compare their durability with the decisions'"),
    ),
    "source, driver": (
        Right(ACLOperation.READ, TOPIC, DATA, "with the next one: the transaction that blocks the query is named"),
        Right(ACLOperation.DESCRIBE, ID, EVERY, "with the one before"),
        Right(ACLOperation.READ, GROUP, READER_GROUP, "`commitOffsetsToGroup`, together with READ on the data topics"),
    ),
    "`timeline`": (Right(ACLOperation.DESCRIBE, ID, EVERY, "producers by name"),),
    "`watch`": (
        _SEE_PARTITION,
        Right(ACLOperation.DESCRIBE, ID, EVERY, "with the one before: verdicts and transactional ids"),
    ),
}


# Of the transactional id that the checks use.
TRIAL_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Examination:
    """What is examined: the cluster, the names of a query, and the roles whose rights are checked."""

    options: ClientOptions
    prefix: str
    decision_topic: str
    topics: Sequence[str] = ()
    roles: Collection[str] = ("sink", "source")
    is_read_only: bool = False
    # Whether the query accepts a decision topic that deletes decisions.
    may_expire: bool = False
    # Where a record may be written and aborted, to see whether readers get it.
    trial_topic: str | None = None

    @property
    def probe(self) -> str:
        return f"{self.prefix}.{PROBE}"


# The operations that are allowed on a resource: a topic by its name, other resources by their place in a role's rights.
# A resource that is missing here could not be determined.
Allowed: TypeAlias = dict[tuple[ResourceType, str], frozenset[int]]


def allowed_operations(client: KafkaClient, examined: Examination) -> tuple[Allowed, OpenTransaction | None]:
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


def _allowed_of_ids(client: KafkaClient, examined: Examination) -> tuple[Allowed, OpenTransaction | None]:
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


class ComparedRights(NamedTuple):
    """Rights that are missing, and rights that could not be determined, each with the name of its resource."""

    missing: Sequence[tuple[Right, str]]
    unknown: Sequence[tuple[Right, str]]


def compared(rights: Sequence[Right], examined: Examination, allowed: Allowed) -> ComparedRights:
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
    return ComparedRights(missing, unknown)


def list_text(missing: Iterable[tuple[Right, str]]) -> str:
    return ", ".join(
        f"{right.operation.name} on the {right.kind}{'' if right.place == ITSELF else f' {name}'}"
        for right, name in missing
    )


def grant_commands(missing: Iterable[tuple[Right, str]]) -> str:
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
