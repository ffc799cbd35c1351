"""What every error code that a client of transactions can receive requires, by API, as data.

The rows follow the Java client; where it is stricter than necessary, the reasons are beside them. Codes that are not
listed use the API's default. The rows of EndTxn only say whether to send it again, not what became of the transaction.
A code cannot show that: for a committed transaction whose response was lost, it may be INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS or PRODUCER_FENCED. So the caller uses DescribeTransactions.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from broker_core.errors import ErrorCode
from spark_eos.errors import (
    AbortableError,
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    FencedError,
    RecordTooLargeError,
    TopicError,
    UnsupportedError,
)


class Api(Enum):
    """The requests whose codes are classified."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"
    PRODUCE = "Produce"
    DESCRIBE_TRANSACTIONS = "DescribeTransactions"
    LIST_TRANSACTIONS = "ListTransactions"
    OFFSET_FETCH = "OffsetFetch"
    OFFSET_COMMIT = "OffsetCommit"
    CREATE_TOPICS = "CreateTopics"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class Verdict(Enum):
    """What a code requires of the client."""

    SUCCESS = auto()
    RETRIABLE = auto()  # send the same request again after a back-off
    REFRESH = auto()  # look up the leader or coordinator again, then send the same request
    SPLIT = auto()  # send the same records in smaller batches
    ABORTABLE = auto()  # this transaction must be aborted; the producer may continue with another
    FENCED = auto()  # a newer owner exists or the coordinator ended the transaction: send nothing more
    FATAL = auto()  # another attempt cannot help


_E = ErrorCode
_RETRIED_EVERYWHERE: Final = {
    _E.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRIABLE,
    _E.CONCURRENT_TRANSACTIONS: Verdict.RETRIABLE,
    _E.REQUEST_TIMED_OUT: Verdict.RETRIABLE,
    _E.NETWORK_EXCEPTION: Verdict.RETRIABLE,
    _E.UNKNOWN_TOPIC_OR_PARTITION: Verdict.RETRIABLE,
    _E.LEADER_NOT_AVAILABLE: Verdict.RETRIABLE,
    _E.NOT_LEADER_OR_FOLLOWER: Verdict.RETRIABLE,
    _E.NOT_ENOUGH_REPLICAS: Verdict.RETRIABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.RETRIABLE,
    _E.KAFKA_STORAGE_ERROR: Verdict.RETRIABLE,
    _E.THROTTLING_QUOTA_EXCEEDED: Verdict.RETRIABLE,
    _E.COORDINATOR_NOT_AVAILABLE: Verdict.REFRESH,
    _E.NOT_COORDINATOR: Verdict.REFRESH,
}
_FENCING: Final = {_E.INVALID_PRODUCER_EPOCH: Verdict.FENCED, _E.PRODUCER_FENCED: Verdict.FENCED}

# Rules I.3 and I.3 produce.
TABLE: Final[Mapping[Api, Mapping[ErrorCode, Verdict]]] = {
    Api.FIND_COORDINATOR: {**_RETRIED_EVERYWHERE, _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE},
    Api.INIT_PRODUCER_ID: {**_RETRIED_EVERYWHERE, **_FENCING, _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE},
    Api.ADD_PARTITIONS: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        _E.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        _E.OPERATION_NOT_ATTEMPTED: Verdict.ABORTABLE,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
        _E.INVALID_TXN_STATE: Verdict.FATAL,
        _E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
        _E.UNSUPPORTED_VERSION: Verdict.FATAL,
    },
    Api.ADD_OFFSETS: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        _E.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
    },
    Api.TXN_OFFSET_COMMIT: {
        **_RETRIED_EVERYWHERE,
        # A group coordinator that times out has often just moved.
        _E.REQUEST_TIMED_OUT: Verdict.REFRESH,
        **_FENCING,
        _E.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        _E.ILLEGAL_GENERATION: Verdict.ABORTABLE,
        _E.UNKNOWN_MEMBER_ID: Verdict.ABORTABLE,
        _E.FENCED_INSTANCE_ID: Verdict.ABORTABLE,
        _E.GROUP_ID_NOT_FOUND: Verdict.ABORTABLE,
        _E.STALE_MEMBER_EPOCH: Verdict.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
    },
    Api.END_TXN: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
    },
    Api.PRODUCE: {
        **_RETRIED_EVERYWHERE,
        _E.UNKNOWN_TOPIC_OR_PARTITION: Verdict.REFRESH,
        _E.LEADER_NOT_AVAILABLE: Verdict.REFRESH,
        _E.NOT_LEADER_OR_FOLLOWER: Verdict.REFRESH,
        _E.REPLICA_NOT_AVAILABLE: Verdict.REFRESH,
        _E.KAFKA_STORAGE_ERROR: Verdict.REFRESH,
        _E.FENCED_LEADER_EPOCH: Verdict.REFRESH,
        _E.UNKNOWN_LEADER_EPOCH: Verdict.REFRESH,
        _E.UNKNOWN_TOPIC_ID: Verdict.REFRESH,
        _E.INCONSISTENT_TOPIC_ID: Verdict.REFRESH,
        # The bytes arrived changed; the same bytes are sent again.
        _E.CORRUPT_MESSAGE: Verdict.RETRIABLE,
        # The leader waits for the transaction coordinator; the client does not.
        _E.COORDINATOR_NOT_AVAILABLE: Verdict.RETRIABLE,
        _E.NOT_COORDINATOR: Verdict.RETRIABLE,
        _E.MESSAGE_TOO_LARGE: Verdict.SPLIT,
        _E.RECORD_LIST_TOO_LARGE: Verdict.SPLIT,
        # The coordinator ended the transaction, or a newer owner did; either way EndTxn is up to the owner.
        **_FENCING,
        # One request is in flight for each partition, so a gap, or a duplicate that the leader has forgotten, means
        # that another process wrote under this identity or that records are gone: never continue.
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.ABORTABLE,
        _E.DUPLICATE_SEQUENCE_NUMBER: Verdict.ABORTABLE,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
        _E.INVALID_TXN_STATE: Verdict.ABORTABLE,
        _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
        _E.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        _E.INVALID_RECORD: Verdict.ABORTABLE,
        _E.INVALID_TIMESTAMP: Verdict.ABORTABLE,
        _E.UNSUPPORTED_COMPRESSION_TYPE: Verdict.ABORTABLE,
        _E.INVALID_TOPIC_EXCEPTION: Verdict.ABORTABLE,
        _E.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
        _E.UNSUPPORTED_VERSION: Verdict.FATAL,
        _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.FATAL,
        _E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
    },
    # TRANSACTIONAL_ID_NOT_FOUND is an answer, so it ends the retries and stays in the result.
    Api.DESCRIBE_TRANSACTIONS: {**_RETRIED_EVERYWHERE},
    # Every broker lists its own transactions, so no coordinator has to be looked up again.
    Api.LIST_TRANSACTIONS: {**_RETRIED_EVERYWHERE, _E.COORDINATOR_NOT_AVAILABLE: Verdict.RETRIABLE},
    Api.OFFSET_FETCH: {**_RETRIED_EVERYWHERE, _E.UNSTABLE_OFFSET_COMMIT: Verdict.RETRIABLE},
    # The committer is not a member, so codes about members mean that consumers are active in this group: never
    # continue.
    Api.OFFSET_COMMIT: {**_RETRIED_EVERYWHERE, _E.REQUEST_TIMED_OUT: Verdict.REFRESH},
    Api.CREATE_TOPICS: {**_RETRIED_EVERYWHERE, _E.NOT_CONTROLLER: Verdict.RETRIABLE},
    Api.DESCRIBE_CONFIGS: {**_RETRIED_EVERYWHERE, _E.UNKNOWN_TOPIC_OR_PARTITION: Verdict.FATAL},
}

DEFAULTS: Final[Mapping[Api, Verdict]] = {
    api: Verdict.ABORTABLE if api in (Api.ADD_PARTITIONS, Api.PRODUCE) else Verdict.FATAL for api in Api
}

# The families of codes that say it all; the others have the family of their verdict.
_FAMILIES: Final[Mapping[ErrorCode, type[EosKafkaError]]] = {
    _E.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    _E.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    _E.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    _E.UNSUPPORTED_VERSION: UnsupportedError,
    _E.UNKNOWN_TOPIC_OR_PARTITION: TopicError,
    _E.UNKNOWN_TOPIC_ID: TopicError,
    _E.INVALID_TOPIC_EXCEPTION: TopicError,
}
_FAMILIES_OF_VERDICTS: Final[Mapping[Verdict, type[EosKafkaError]]] = {
    Verdict.FENCED: FencedError,
    Verdict.ABORTABLE: AbortableError,
    Verdict.SPLIT: RecordTooLargeError,
    Verdict.RETRIABLE: AbortableError,
    Verdict.REFRESH: AbortableError,
}

_ENDED: Final = (
    "the coordinator ended this transaction, or a newer producer took over its transactional id",
    "Run the micro-batch or job again. If it took longer than the option transactionTimeout, and no broker was away "
    "meanwhile, raise that; otherwise check whether a second copy of the query is running",
)
# The description and the remedy of codes whose name alone does not help.
_WORDS: Final[Mapping[ErrorCode, tuple[str, str]]] = {
    _E.INVALID_TRANSACTION_TIMEOUT: (
        "the transaction timeout is above what the brokers allow",
        "Lower the option transactionTimeout, or raise transaction.max.timeout.ms on the brokers",
    ),
    _E.INVALID_PRODUCER_EPOCH: _ENDED,
    _E.PRODUCER_FENCED: _ENDED,
    _E.INVALID_TXN_STATE: ("no such transaction is open", "Run the micro-batch or job again"),
    _E.INVALID_PRODUCER_ID_MAPPING: (
        "the coordinator does not know this producer: its transactional id has expired, or records of "
        "__transaction_state are lost",
        "Run the micro-batch or job again. If this repeats, raise transactional.id.expiration.ms on the brokers",
    ),
    _E.UNSUPPORTED_VERSION: (
        "the broker does not support this, for example after transaction.version was lowered to 0 while "
        "transactions V2 were open",
        "If transaction.version was lowered, raise it to 1 or 2, then restart the brokers one by one",
    ),
    _E.TRANSACTION_ABORTABLE: (
        "the broker requires this transaction to be aborted",
        "Run the micro-batch or job again",
    ),
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "the partition does not have the records sent before these",
        "Check the partition's leader for data loss",
    ),
    _E.MESSAGE_TOO_LARGE: (
        "one record is larger than the topic accepts",
        "Raise max.message.bytes of the topic (and message.max.bytes of the brokers), or make the records smaller",
    ),
    _E.RECORD_LIST_TOO_LARGE: ("one record is larger than a segment of the topic", "Raise segment.bytes of the topic"),
    _E.TOPIC_AUTHORIZATION_FAILED: (
        "the principal is not allowed to write to the topic",
        "Grant WRITE and DESCRIBE on the topic",
    ),
    _E.GROUP_AUTHORIZATION_FAILED: (
        "the principal is not allowed to use the group",
        "Grant READ and DESCRIBE on the group. A sink needs them on all groups that begin with its option "
        "transactionalIdPrefix and a dot, as a prefixed pattern",
    ),
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "the principal is not allowed to use the transactional id",
        "Grant WRITE and DESCRIBE on all transactional ids that begin with the option transactionalIdPrefix and a dot, "
        "as a prefixed pattern: the right to one id is not enough",
    ),
    _E.UNKNOWN_MEMBER_ID: ("consumers are active in the group", "Choose a group that no other application uses"),
    _E.CLUSTER_AUTHORIZATION_FAILED: (
        "the principal lacks a right on the cluster",
        "Grant it, or ask an administrator to do this step",
    ),
    _E.INVALID_RECORD: (
        "the broker rejected a record of the batch",
        "If the topic is compacted, every record needs a key",
    ),
    _E.INVALID_TIMESTAMP: (
        "a record's timestamp is outside what the topic accepts",
        "Compare the timestamp column with message.timestamp.before.max.ms and message.timestamp.after.max.ms; without "
        "the column, the clock of the driver or executor that wrote with the brokers' clocks",
    ),
    _E.UNSUPPORTED_COMPRESSION_TYPE: (
        "the broker does not support the compression type",
        "Choose another kafka.compression.type",
    ),
    _E.UNKNOWN_TOPIC_OR_PARTITION: ("the topic or partition does not exist", "Create it, or correct its name"),
    _E.UNKNOWN_TOPIC_ID: ("the topic was deleted, or deleted and created again", "Run the micro-batch or job again"),
    _E.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than the topic's min.insync.replicas",
        "Restart the missing brokers",
    ),
    _E.CONCURRENT_TRANSACTIONS: (
        "an earlier transaction of the same transactional id is still being completed",
        "Check that the leaders of the partitions it wrote to are running: they must accept its markers",
    ),
}

# APIs that need a different right than the others with the same code.
_WORDS_OF_API: Final[Mapping[tuple[Api, ErrorCode], tuple[str, str]]] = {
    (api, _E.TOPIC_AUTHORIZATION_FAILED): (f"the principal lacks {right} on the topic", f"Grant {right} on the topic")
    for api, right in {
        Api.TXN_OFFSET_COMMIT: "READ",
        Api.OFFSET_COMMIT: "READ",
        Api.OFFSET_FETCH: "DESCRIBE",
        Api.CREATE_TOPICS: "CREATE",
        Api.DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    }.items()
} | {
    (Api.DESCRIBE_CONFIGS, _E.CLUSTER_AUTHORIZATION_FAILED): (
        "the principal lacks DESCRIBE_CONFIGS on the cluster",
        "Grant DESCRIBE_CONFIGS on the cluster",
    )
}


def classify(api: Api, code: int) -> Verdict:
    if code == ErrorCode.NONE:
        return Verdict.SUCCESS
    return TABLE[api].get(known_code(code), DEFAULTS[api])


def known_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def worst_code(api: Api, codes: Iterable[int]) -> int:
    """Choose among the codes of one response: a final one before a retriable one."""
    bad = [code for code in codes if code != ErrorCode.NONE]
    final = [code for code in bad if classify(api, code) not in (Verdict.RETRIABLE, Verdict.REFRESH)]
    return (final or bad or [int(ErrorCode.NONE)])[0]


def code_name(code: int) -> str:
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error code {code}"


def failure(api: Api, code: int, subject: str, *, detail: str = "") -> EosKafkaError:
    """Return the exception for a final code; `subject` names what the request was about."""
    known = known_code(code)
    words, remedy = _WORDS_OF_API.get((api, known)) or _WORDS.get(known, ("", ""))
    happened = f"{api.value} for {subject} was refused" + (f": {words}" if words else "")
    checked = f"The broker answered {code_name(code)}" + (f", {detail}" if detail else "")
    family = _FAMILIES.get(known) or _FAMILIES_OF_VERDICTS.get(classify(api, known), BrokerError)
    return family(happened, checked=checked, remedy=remedy, error_code=code)
