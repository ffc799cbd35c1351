"""The rights that each role needs, as ACLs: the documentation's table, and what the tests grant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker_core.security.acls import CLUSTER_NAME, Operation, PatternType, ResourceType

TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
# The table's placeholders for the names of a query.
DATA, DECISIONS, PREFIX = "the data topics", "the decision topic", "those that begin with `{prefix}.`"
EVERY = "all (`*`)"
ONE_ID, READER_GROUP, ITSELF = "the id", "the group", "itself"
_KINDS = {TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", ID: "transactional id"}


@dataclass(frozen=True)
class Right:
    """One ACL of a role and its purpose."""

    operation: Operation
    resource_type: ResourceType
    place: str
    purpose: str

    @property
    def kind(self) -> str:
        """Return the resource type in the words of users."""
        return _KINDS[self.resource_type]

    def resource(self, names: Mapping[str, str]) -> tuple[str, PatternType]:
        """Return the resource for these names."""
        if self.place == PREFIX:
            return f"{names[PREFIX]}.", PatternType.PREFIXED
        return {EVERY: "*", ITSELF: CLUSTER_NAME}.get(self.place) or names[self.place], PatternType.LITERAL


_OWN_IDS = Right(Operation.WRITE, ID, PREFIX, "its transactions")
_SEE_DECISIONS = Right(Operation.READ, TOPIC, DECISIONS, "decisions of earlier runs")
_PUT_DECISIONS = Right(Operation.WRITE, TOPIC, DECISIONS, "decisions")
_POINTER = Right(Operation.READ, GROUP, PREFIX, "the pointer to the newest decision")
_SEE_FATE = Right(Operation.READ, TOPIC, DATA, "recovery, where only the log says what became of a transaction")
_SEE_EVERY_ID = Right(Operation.DESCRIBE, ID, EVERY, "to tell a live transaction from one that hangs")
_SEE_PARTITION = Right(Operation.READ, TOPIC, DATA, "what its partitions have open")

# The role fails without any one of them.
ROLES: Mapping[str, Sequence[Right]] = {
    "sink, task": (
        _OWN_IDS,
        Right(Operation.WRITE, TOPIC, DATA, "the rows"),
        Right(Operation.DESCRIBE, GROUP, PREFIX, "the pointer to the newest decision"),
    ),
    "sink, driver": (_OWN_IDS, _SEE_FATE, _SEE_DECISIONS, _PUT_DECISIONS, _POINTER),
    "source, driver": (Right(Operation.DESCRIBE, TOPIC, DATA, "partitions and offsets"),),
    "source, task": (Right(Operation.READ, TOPIC, DATA, "the rows"),),
    "`decisions list`, `show`": (
        Right(Operation.DESCRIBE, ID, PREFIX, "the fate of each transaction"),
        _SEE_FATE,
        _SEE_DECISIONS,
    ),
    "`decisions complete`, `abort`": (_OWN_IDS, _SEE_FATE, _SEE_DECISIONS, _PUT_DECISIONS, _POINTER),
    "`transactions list`": (Right(Operation.DESCRIBE, ID, EVERY, "ids without it are left out, which is said"),),
    "`transactions describe`": (Right(Operation.DESCRIBE, ID, ONE_ID, "the answer"),),
    "`transactions describe-producers`": (_SEE_PARTITION,),
    "`transactions find-hanging`": (_SEE_PARTITION, _SEE_EVERY_ID),
    "`transactions abort`": (_SEE_PARTITION, _SEE_EVERY_ID, Right(Operation.ALTER, CLUSTER, ITSELF, "the marker")),
    "`transactions force-terminate`": (Right(Operation.WRITE, ID, ONE_ID, "the end"),),
    "`timeline`": (_SEE_PARTITION,),
}

# Optional rights: without them the role works and reports what it does instead.
OPTIONAL: Mapping[str, Sequence[Right]] = {
    "sink, task": (
        Right(Operation.READ, TOPIC, DECISIONS, "without it rows that are decided already are written and dropped"),
        Right(Operation.READ, TOPIC, DATA, "with the one before: recovery, as below"),
    ),
    "sink, driver": (
        Right(Operation.CREATE, TOPIC, DECISIONS, "only where the topic is missing"),
        Right(Operation.DESCRIBE_CONFIGS, TOPIC, DECISIONS, "to refuse a topic that would forget decisions"),
        Right(
            Operation.DESCRIBE_CONFIGS,
            CLUSTER,
            ITSELF,
            "the longest `transactionTimeout`; without it the default is 60 s; whether brokers verify transactions",
        ),
        Right(Operation.DESCRIBE_CONFIGS, TOPIC, DATA, "to compare their durability with the decisions'"),
    ),
    "source, driver": (
        Right(Operation.READ, TOPIC, DATA, "with the next one: the transaction that holds the query up is named"),
        Right(Operation.DESCRIBE, ID, EVERY, "with the one before"),
        Right(Operation.READ, GROUP, READER_GROUP, "`commitOffsetsToGroup`, together with READ on the data topics"),
    ),
    "`timeline`": (Right(Operation.DESCRIBE, ID, EVERY, "producers by name"),),
}

BEGIN, END = "<!-- rights: checked by tests/integration/spark_eos/security/test_rights.py -->", "<!-- end of rights -->"


def table() -> str:
    """Return the table of `docs/security/access-control.md`."""
    lines = ["| role | operation | on | for |", "|---|---|---|---|"]
    for role, rights in ROLES.items():
        for right in rights:
            lines.append(_line(role, right, ""))
        lines += [_line(role, right, "may be had: ") for right in OPTIONAL.get(role, ())]
    return "\n".join(lines)


def _line(role: str, right: Right, word: str) -> str:
    on = right.kind if right.place == ITSELF else f"{right.kind}: {right.place}"
    return f"| {role} | {right.operation.name} | {on} | {word}{right.purpose} |"
