"""The rights that each role needs, as ACLs.

`docs/security/access-control.md` shows them, tests grant exactly them, and `eos-kafka doctor` looks for rights that are
missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_eos.client.allowed_operations import ACLOperation, ResourceType

TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
# The table's placeholders for the names of a query.
DATA: Final = "the data topics"
DECISIONS: Final = "the decision topic"
PREFIX: Final = "names that begin with `{prefix}.`"
EVERY: Final = "all (`*`)"
ONE_ID: Final = "the id"
READER_GROUP: Final = "the group"
ITSELF: Final = "itself"
_KINDS: Final = {TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", ID: "transactional id"}


@dataclass(frozen=True)
class Right:
    """One ACL of a role and its purpose."""

    operation: ACLOperation
    resource_type: ResourceType
    place: str
    purpose: str

    @property
    def kind(self) -> str:
        """Return the resource type in the words of users."""
        return _KINDS[self.resource_type]


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
    "sink, driver": (_OWN_IDS, _SEE_FATE, _SEE_DECISIONS, _PUT_DECISIONS, _POINTER),
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
