"""Decisions: the records of which transactions make up a micro-batch.

A decision is JSON, so that an operator can read it with any consumer. It has a version, so that a newer format is
refused instead of misread, and a CRC-32C over its canonical text. A micro-batch with very many transactions is split
over several records, each complete except for the list, which are written in one transaction. For each task and topic
it has the number of rows and their checksum, so that a re-run can be compared with it.

A decision is written again under the same key, with a higher revision, when more is known: that it was completed, what
an operator did last, on which a restarted query has to act, or which runs must not decide any more. An audit record of
an intervention has a separate key, so that compaction keeps every one of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import crc32c

from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.errors import EosKafkaError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.readable import utc as utc
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange, ids_of_topics

DECISION_VERSION: Final = 3
POINTER_VERSION: Final = 1
AUDIT_VERSION: Final = 1
DEFAULT_PART_BYTES: Final = 512 * 1024
# Ids of so few topics never make a record larger than a topic's default limit, 1 MiB; more of them are counted.
_FEW_TOPICS: Final = 100
_MOST_BYTES_WITH_IDS: Final = 900_000
# The fields of a decision that each of its records has as they are.
_TEXTS: Final = ("prefix", "query", "run")
_NUMBERS: Final = ("micro_batch", "attempt", "split_count", "decided_at_ms")


class UnreadableDecisionError(EosKafkaError):
    """A decision that cannot be read; continuing without it could lose or repeat a micro-batch."""

    default_remedy = (
        "If another version of this package wrote it, use that version. Otherwise keep the record and the group's "
        "offset, because without them the micro-batch may be written twice, and look up the transactional ids in the "
        "record with `eos-kafka transactions describe`"
    )


class Rank(NamedTuple):
    """The place of a decision in the order of its query's decisions: the highest is the newest."""

    micro_batch: int
    attempt: int
    revision: int = 0


# Below the rank of every decision.
NO_DECISION: Final = Rank(-1, 0)


class OperatorAction(StrEnum):
    """What an operator can do about a decision."""

    COMPLETE = "complete"
    ABORT = "abort"


class Restart(StrEnum):
    """What a restarted query does with an abandoned micro-batch: write all of it again, or never."""

    REWRITE = "rewrite"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Intervention:
    """Who intervened, when and why; `restart` is None unless the decision was abandoned."""

    action: OperatorAction
    by: str
    at_ms: int
    reason: str = ""
    restart: Restart | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The statement that the transactions of a micro-batch are to be committed, by any process.

    `attempt` counts the decisions for the same micro-batch: a later one is written only if the transactions of the
    earlier one were lost. `split_count` is the number of tasks that responded. `completed_at_ms` is set by a later
    revision, written when all transactions were known to be committed. `superseded` names runs that decide nothing
    after this, see `protocol.orphan_sweep`. `write` names one call of a batch write, so that a second one in the
    same run is not mistaken for a repetition of the first; a stream has none. `topic` is where the decision was read
    or will be written; it is part of no record.
    """

    prefix: str
    query: str
    run: str
    micro_batch: int
    attempt: int
    split_count: int
    decided_at_ms: int
    transactions: tuple[PreparedTransaction, ...]
    revision: int = 0
    completed_at_ms: int | None = None
    intervention: Intervention | None = None
    superseded: tuple[str, ...] = ()
    write: str = ""
    topic: str = field(default="", compare=False)

    @property
    def rank(self) -> Rank:
        return Rank(self.micro_batch, self.attempt, self.revision)

    @property
    def is_abandoned(self) -> bool:
        return self.intervention is not None and self.intervention.action is OperatorAction.ABORT

    @property
    def is_skipped(self) -> bool:
        """Return whether an operator wants the micro-batch never to be written again, whatever of it is visible."""
        return self.is_abandoned and self.intervention is not None and self.intervention.restart is Restart.SKIP

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(each.topic for transaction in self.transactions for each in transaction.rows)

    @property
    def record_count(self) -> int:
        return sum(transaction.record_count for transaction in self.transactions)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a decision that is in one record."""

    number: int
    count: int
    decision: Decision


class Pointer(NamedTuple):
    """The position of a query's newest decision, as stored in the query's consumer group."""

    topic_partition: TopicPartition
    offset: int
    rank: Rank
    parts: int
    # Of the decision; the first versions did not read it.
    run: str = ""

    def is_to(self, decision: Decision) -> bool:
        return decision.rank == self.rank and self.run in ("", decision.run)


def write_decision(decision: Decision, part_bytes: int = DEFAULT_PART_BYTES) -> list[bytes]:
    """Encode a decision as the values of one or more records of about `part_bytes` at most."""
    shares = _share(decision.transactions, part_bytes)
    return [_write_part(decision, number, len(shares), share) for number, share in enumerate(shares)]


def read_part(value: bytes, where: str) -> Part:
    try:
        document = json.loads(value)
        version = document["version"]
        written_crc = document.pop("crc32c", None)
        # For a large decision this takes as long as decoding it, so it is done once.
        found_crc = _checksum(document)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableDecisionError(f"The decision at {where} is not a JSON object with a version") from None
    if version != DECISION_VERSION:
        raise UnreadableDecisionError(
            f"The decision at {where} has version {version}; this package reads version {DECISION_VERSION}"
        )
    if written_crc != found_crc:
        raise UnreadableDecisionError(f"The decision at {where} does not match its checksum {written_crc!r}")
    try:
        return _part(document)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise UnreadableDecisionError(f"The decision at {where} is incomplete: {problem!r}") from None


def join_parts(parts: Sequence[Part], where: str, topic: str = "") -> Decision:
    """Return the decision of these parts, which were read in `topic`."""
    ordered = sorted(parts, key=lambda part: part.number)
    names = {(p.decision.run, *p.decision.rank, p.count) for p in ordered}
    if len(names) != 1 or [part.number for part in ordered] != list(range(ordered[0].count)):
        numbers = [part.number for part in ordered]
        raise UnreadableDecisionError(f"The decision at {where} is incomplete: parts {numbers} of {names}")
    head = ordered[0].decision
    transactions = tuple(transaction for part in ordered for transaction in part.decision.transactions)
    return replace(head, transactions=transactions, topic=topic)


def write_pointer(decision: Decision, parts: int) -> str:
    """Encode the metadata that is committed with the offset of a decision's first record."""
    fields = {"v": POINTER_VERSION, "batch": decision.micro_batch, "attempt": decision.attempt, "parts": parts}
    if decision.revision:
        fields["revision"] = decision.revision
    return json.dumps({**fields, "run": decision.run}, separators=(",", ":"))


def read_pointer(topic_partition: TopicPartition, offset: int, metadata: str, where: str) -> Pointer | None:
    """Decode what `write_pointer` encoded; return None for an offset that something else committed."""
    try:
        fields = _parsed(metadata)
        if fields["v"] != POINTER_VERSION:
            raise UnreadableDecisionError(f"The decision pointer in {where} has version {fields['v']}")
        rank = Rank(int(fields["batch"]), int(fields["attempt"]), int(fields.get("revision", 0)))
        return Pointer(topic_partition, offset, rank, int(fields["parts"]), str(fields.get("run", "")))
    except (ValueError, KeyError, TypeError):
        return None


def _share(transactions: Sequence[PreparedTransaction], part_bytes: int) -> list[list[PreparedTransaction]]:
    shares: list[list[PreparedTransaction]] = [[]]
    filled_bytes = 0
    for transaction in transactions:
        size_bytes = len(_canonical(_transaction_document(transaction)))
        if shares[-1] and filled_bytes + size_bytes > part_bytes:
            shares.append([])
            filled_bytes = 0
        shares[-1].append(transaction)
        filled_bytes += size_bytes
    return shares


def _kept_ids(share: Sequence[PreparedTransaction]) -> dict[str, str]:
    """Return the ids of topics: none for a topic that has two, and none at all if the part would become too large.

    They serve a notice only: that a topic was deleted and created again.
    """
    found = {topic: str(*ids) for topic, ids in ids_of_topics(share).items() if len(ids) == 1}
    if len(found) <= _FEW_TOPICS:
        return found
    size_bytes = len(_canonical(found)) + sum(len(_canonical(_transaction_document(each))) for each in share)
    return found if size_bytes <= _MOST_BYTES_WITH_IDS else {}


def _write_part(decision: Decision, number: int, count: int, share: Sequence[PreparedTransaction]) -> bytes:
    ids = _kept_ids(share)
    document: dict[str, Any] = {
        "version": DECISION_VERSION,
        "part": number,
        "parts": count,
        **{name: getattr(decision, name) for name in (*_TEXTS, *_NUMBERS)},
        "transactions": [_transaction_document(transaction) for transaction in share],
    }
    if ids:
        document["topic_ids"] = ids
    if decision.superseded:
        document["superseded"] = list(decision.superseded)
    if decision.write:
        document["write"] = decision.write
    if decision.revision:
        document |= {
            "revision": decision.revision,
            "completed_at_ms": decision.completed_at_ms,
            "intervention": intervention_document(decision.intervention),
        }
    return sealed_json(document)


def _part(document: dict[str, Any]) -> Part:
    topic_ids = {topic: UUID(topic_id) for topic, topic_id in document.get("topic_ids", {}).items()}
    plain: dict[str, Any] = {name: str(document[name]) for name in _TEXTS}
    plain |= {name: int(document[name]) for name in _NUMBERS}
    decision = Decision(
        **plain,
        transactions=tuple(_transaction(entry, topic_ids) for entry in document["transactions"]),
        superseded=tuple(str(run) for run in document.get("superseded", ())),
        write=str(document.get("write", "")),
    )
    if "revision" in document:
        completed_at_ms = document["completed_at_ms"]
        decision = replace(
            decision,
            revision=int(document["revision"]),
            completed_at_ms=None if completed_at_ms is None else int(completed_at_ms),
            intervention=_intervention(document["intervention"]),
        )
    return Part(int(document["part"]), int(document["parts"]), decision)


def intervention_document(intervention: Intervention | None) -> dict[str, Any] | None:
    return None if intervention is None else asdict(intervention)


def _intervention(document: Mapping[str, Any] | None) -> Intervention | None:
    if document is None:
        return None
    restart = document["restart"]
    return Intervention(
        action=OperatorAction(document["action"]),
        by=str(document["by"]),
        at_ms=int(document["at_ms"]),
        reason=str(document["reason"]),
        restart=None if restart is None else Restart(restart),
    )


def transaction_fields(transaction: PreparedTransaction) -> dict[str, Any]:
    """Return what names a transaction and its time, under the names that a decision uses."""
    transactional_id, (producer_id, producer_epoch), transaction_version = transaction.opened
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_version": transaction_version,
        "timeout_ms": transaction.timeout_ms,
        "started_at_ms": transaction.started_at_ms,
    }


def _transaction_document(transaction: PreparedTransaction) -> dict[str, Any]:
    topics = {
        topic: [[r.partition, r.first_offset, r.last_offset, r.record_count] for r in ranges]
        for topic, ranges in groupby(
            sorted(transaction.ranges, key=attrgetter("topic", "partition")), key=attrgetter("topic")
        )
    }
    # JSON numbers of 64 bits do not survive every reader, so a checksum is text.
    rows = {each.topic: [each.record_count, f"{each.checksum:016x}"] for each in transaction.rows}
    return {"split": transaction.split, **transaction_fields(transaction), "ranges": topics, "rows": rows}


def _transaction(entry: dict[str, Any], topic_ids: Mapping[str, UUID]) -> PreparedTransaction:
    ranges = tuple(
        WrittenRange(topic, int(partition), int(first), int(last), int(count), topic_ids.get(topic))
        for topic, rows in entry["ranges"].items()
        for partition, first, last, count in rows
    )
    producer = ProducerIdentity(int(entry["producer_id"]), int(entry["producer_epoch"]))
    return PreparedTransaction(
        split=int(entry["split"]),
        opened=OpenTransaction(str(entry["transactional_id"]), producer, int(entry["transaction_version"])),
        timeout_ms=int(entry["timeout_ms"]),
        started_at_ms=int(entry["started_at_ms"]),
        ranges=ranges,
        rows=tuple(
            TopicRows(topic, int(count), int(checksum, 16)) for topic, (count, checksum) in entry["rows"].items()
        ),
    )


def sealed_json(document: dict[str, Any]) -> bytes:
    """Encode a document as canonical JSON that includes its CRC-32C."""
    return _canonical({**document, "crc32c": _checksum(document)})


def read_sealed_json(value: bytes) -> dict[str, Any]:
    """Decode what `sealed_json` encoded, without its checksum; raise `ValueError` for anything else."""
    document = _parsed(value)
    if not isinstance(document, dict) or document.pop("crc32c", None) != _checksum(document):
        raise ValueError("not a JSON object with its checksum")
    return document


def _parsed(text: bytes | str) -> Any:
    """Parse JSON; raise `ValueError` for invalid JSON, and for JSON that is nested too deep for Python."""
    try:
        document = json.loads(text)
        _canonical(document)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return document


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _checksum(document: dict[str, Any]) -> str:
    return f"{crc32c.crc32c(_canonical(document)):08x}"
