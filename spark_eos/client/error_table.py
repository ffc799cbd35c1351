"""What every error code that a client of transactions can receive requires, by API, as data.

The rows follow the Java client; where it is stricter than necessary, the reasons are beside them. Codes that are not
listed use the API's default. The rows of EndTxn only say whether to send it again, not what became of the transaction.
A code cannot show that: for a committed transaction whose response was lost, it may be INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS or PRODUCER_FENCED. So the caller uses DescribeTransactions.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cache
from importlib.resources import files
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


def _codes(verdict: Verdict, *codes: ErrorCode) -> dict[ErrorCode, Verdict]:
    return dict.fromkeys(codes, verdict)


_RETRIED_EVERYWHERE: Final = {
    **_codes(Verdict.RETRIABLE, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.CONCURRENT_TRANSACTIONS),
    **_codes(Verdict.RETRIABLE, _E.REQUEST_TIMED_OUT, _E.NETWORK_EXCEPTION, _E.THROTTLING_QUOTA_EXCEEDED),
    **_codes(Verdict.RETRIABLE, _E.UNKNOWN_TOPIC_OR_PARTITION, _E.LEADER_NOT_AVAILABLE, _E.NOT_LEADER_OR_FOLLOWER),
    **_codes(Verdict.RETRIABLE, _E.NOT_ENOUGH_REPLICAS, _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _E.KAFKA_STORAGE_ERROR),
    **_codes(Verdict.REFRESH, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR),
}
# A failure inside the broker says nothing, and a read can be repeated. Java's clients stop here; users lose nothing by
# another attempt, and an outage that is shorter than the time left must stop no query.
_READ: Final = {**_RETRIED_EVERYWHERE, _E.UNKNOWN_SERVER_ERROR: Verdict.RETRIABLE}
_FENCING: Final = _codes(Verdict.FENCED, _E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED)

# Rules I.3 and I.3 produce.
TABLE: Final[Mapping[Api, Mapping[ErrorCode, Verdict]]] = {
    Api.FIND_COORDINATOR: {**_READ, _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE},
    Api.INIT_PRODUCER_ID: {**_RETRIED_EVERYWHERE, **_FENCING, _E.TRANSACTION_ABORTABLE: Verdict.ABORTABLE},
    Api.ADD_PARTITIONS: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        **_codes(Verdict.ABORTABLE, _E.TOPIC_AUTHORIZATION_FAILED, _E.OPERATION_NOT_ATTEMPTED, _E.UNKNOWN_PRODUCER_ID),
        **_codes(Verdict.ABORTABLE, _E.TRANSACTION_ABORTABLE),
        **_codes(Verdict.FATAL, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _E.INVALID_TXN_STATE),
        **_codes(Verdict.FATAL, _E.INVALID_PRODUCER_ID_MAPPING, _E.UNSUPPORTED_VERSION),
    },
    Api.ADD_OFFSETS: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        **_codes(Verdict.ABORTABLE, _E.GROUP_AUTHORIZATION_FAILED, _E.UNKNOWN_PRODUCER_ID, _E.TRANSACTION_ABORTABLE),
    },
    Api.TXN_OFFSET_COMMIT: {
        **_RETRIED_EVERYWHERE,
        # A group coordinator that times out has often just moved.
        _E.REQUEST_TIMED_OUT: Verdict.REFRESH,
        **_FENCING,
        **_codes(Verdict.ABORTABLE, _E.GROUP_AUTHORIZATION_FAILED, _E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID),
        **_codes(Verdict.ABORTABLE, _E.FENCED_INSTANCE_ID, _E.GROUP_ID_NOT_FOUND, _E.STALE_MEMBER_EPOCH),
        **_codes(Verdict.ABORTABLE, _E.TRANSACTION_ABORTABLE),
    },
    Api.END_TXN: {
        **_RETRIED_EVERYWHERE,
        **_FENCING,
        **_codes(Verdict.ABORTABLE, _E.UNKNOWN_PRODUCER_ID, _E.TRANSACTION_ABORTABLE),
    },
    Api.PRODUCE: {
        **_RETRIED_EVERYWHERE,
        **_codes(Verdict.REFRESH, _E.UNKNOWN_TOPIC_OR_PARTITION, _E.LEADER_NOT_AVAILABLE, _E.NOT_LEADER_OR_FOLLOWER),
        **_codes(Verdict.REFRESH, _E.REPLICA_NOT_AVAILABLE, _E.KAFKA_STORAGE_ERROR, _E.FENCED_LEADER_EPOCH),
        **_codes(Verdict.REFRESH, _E.UNKNOWN_LEADER_EPOCH, _E.UNKNOWN_TOPIC_ID, _E.INCONSISTENT_TOPIC_ID),
        # The bytes arrived changed; the same bytes are sent again.
        _E.CORRUPT_MESSAGE: Verdict.RETRIABLE,
        # The leader waits for the transaction coordinator; the client does not.
        **_codes(Verdict.RETRIABLE, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR),
        **_codes(Verdict.SPLIT, _E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE),
        # The coordinator ended the transaction, or a newer owner did; either way EndTxn is up to the owner.
        **_FENCING,
        # One request is in flight for each partition, so a gap, or a duplicate that the leader has forgotten, means
        # that another process wrote under this identity or that records are gone: never continue.
        **_codes(Verdict.ABORTABLE, _E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.DUPLICATE_SEQUENCE_NUMBER),
        **_codes(Verdict.ABORTABLE, _E.UNKNOWN_PRODUCER_ID, _E.INVALID_TXN_STATE, _E.TRANSACTION_ABORTABLE),
        **_codes(Verdict.ABORTABLE, _E.TOPIC_AUTHORIZATION_FAILED, _E.INVALID_RECORD, _E.INVALID_TIMESTAMP),
        **_codes(Verdict.ABORTABLE, _E.UNSUPPORTED_COMPRESSION_TYPE, _E.INVALID_TOPIC_EXCEPTION),
        **_codes(Verdict.FATAL, _E.CLUSTER_AUTHORIZATION_FAILED, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        **_codes(Verdict.FATAL, _E.UNSUPPORTED_VERSION, _E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        **_codes(Verdict.FATAL, _E.INVALID_PRODUCER_ID_MAPPING),
    },
    # TRANSACTIONAL_ID_NOT_FOUND is an answer, so it ends the retries and stays in the result.
    Api.DESCRIBE_TRANSACTIONS: _READ,
    # Every broker lists its own transactions, so no coordinator has to be looked up again.
    Api.LIST_TRANSACTIONS: {**_READ, _E.COORDINATOR_NOT_AVAILABLE: Verdict.RETRIABLE},
    Api.OFFSET_FETCH: {**_READ, _E.UNSTABLE_OFFSET_COMMIT: Verdict.RETRIABLE},
    # The committer is not a member, so codes about members mean that consumers are active in this group: never
    # continue.
    Api.OFFSET_COMMIT: {**_RETRIED_EVERYWHERE, _E.REQUEST_TIMED_OUT: Verdict.REFRESH},
    Api.CREATE_TOPICS: {**_RETRIED_EVERYWHERE, _E.NOT_CONTROLLER: Verdict.RETRIABLE},
    Api.DESCRIBE_CONFIGS: {**_READ, _E.UNKNOWN_TOPIC_OR_PARTITION: Verdict.FATAL},
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


@cache
def _words() -> Mapping[str, tuple[str, str]]:
    """Return what codes mean whose name alone does not help, and what to do; read only when something has failed.

    A code behind the name of an API needs another right there.
    """
    found: Mapping[str, tuple[str, str]] = json.loads(
        files(__package__).joinpath("error_words.json").read_text("utf-8")
    )
    return found


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


def meaning(api: Api, code: int) -> tuple[str, str]:
    """Return what a code means and what to do, as far as its name alone does not say it."""
    name = known_code(code).name
    return _words().get(f"{api.value} {name}") or _words().get(name, ("", ""))


def explained(api: Api, code: int) -> str:
    """Return a code with its meaning and what to do, for the last response of many that may change."""
    words, remedy = meaning(api, code)
    return f"{code_name(code)}: {words}. {remedy}" if words else code_name(code)


def failure(api: Api, code: int, subject: str, *, detail: str = "") -> EosKafkaError:
    """Return the exception for a final code; `subject` names what the request was about."""
    known = known_code(code)
    words, remedy = meaning(api, code)
    happened = f"{api.value} for {subject} was refused" + (f": {words}" if words else "")
    checked = f"The broker answered {code_name(code)}" + (f", {detail}" if detail else "")
    family = _FAMILIES.get(known) or _FAMILIES_OF_VERDICTS.get(classify(api, known), BrokerError)
    return family(happened, checked=checked, remedy=remedy, error_code=code)
