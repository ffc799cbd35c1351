"""The cluster of the explorer: an exact model of what Kafka answers to one query, as an immutable value.

The rules are those of the broker's tables (`broker_core/coordinator/transactions/decision_tables.py`). An end and its
markers are one step: while a coordinator writes markers, it answers CONCURRENT_TRANSACTIONS, and clients wait.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.sink.naming import driver_id, group_id, is_decision_of, parse_task_id
from spark_eos.sink.protocol import answers, asks

S = TransactionState
# The first one, and what the option may be changed to.
PREFIXES: Final = ("p", "q")
QUERY: Final = "00000000-0000-0000-0000-00000000000a"
# The groups that point to decisions, by the driver's id.
GROUPS: Final = {driver_id(each, QUERY): group_id(each, QUERY) for each in PREFIXES}
DECISIONS: Final = TopicPartition("decisions", 0)
DATA: Final = "t"
# Longer than all retries of one commit; the time of a world goes on by more.
TIMEOUT_MS: Final = 600_000
PHASE_MS: Final = 1_000_000
# A commit waits no longer for a leader.
PATIENCE_MS: Final = TIMEOUT_MS // 2
# A producer that has nothing to do with the query.
STRANGER: Final = ProducerIdentity(999, 0)


class Id(NamedTuple):
    """The coordinator's state of one transactional id; `goes_on` if its owner may begin with the epoch that it has."""

    identity: ProducerIdentity
    state: TransactionState = S.EMPTY
    started_at_ms: int = -1
    goes_on: bool = False


class Row(NamedTuple):
    """The rows that one task has written in one transaction; `kind` tells the rows of a changed input apart."""

    identity: ProducerIdentity
    micro_batch: int
    kind: int
    is_committed: bool | None = None


class Record(NamedTuple):
    """One record of the decision topic."""

    identity: ProducerIdentity
    key: bytes
    value: bytes | None
    is_committed: bool | None = None


class Model(NamedTuple):
    """The cluster: coordinators, the logs of the output topic's partitions, the decision topic, and the pointers.

    `pointers` has the committed offset of each group, `pending` the offsets that open transactions would commit.
    """

    level: int
    ids: tuple[tuple[str, Id], ...] = ()
    data: tuple[tuple[Row, ...], ...] = ()
    decisions: tuple[Record, ...] = ()
    pointers: tuple[tuple[str, answers.CommittedOffset], ...] = ()
    pending: tuple[tuple[str, answers.CommittedOffset], ...] = ()
    # The ids that coordinators have forgotten; an id that comes again gets another producer id.
    forgotten: tuple[str, ...] = ()
    # How often the output topic was deleted and made again, and the logs that went with it.
    remade: int = 0
    gone: tuple[tuple[Row, ...], ...] = ()
    # Whether the partition of task 0 has no leader, and how often it got another one.
    is_away: bool = False
    elections: int = 0

    @property
    def topic_id(self) -> UUID:
        """Return the id of the output topic as it is now."""
        return UUID(int=self.remade + 1)

    def id(self, name: str) -> Id | None:
        """Return what the coordinator knows of an id."""
        return dict(self.ids).get(name)

    def pointer(self, group: str) -> answers.CommittedOffset | None:
        """Return the offset of a group."""
        return dict(self.pointers).get(group)

    def with_id(self, name: str, changed: Id | None) -> "Model":
        """Return the model with another state of one id; None forgets it."""
        ids = {**dict(self.ids), name: changed}
        forgotten = (*self.forgotten, name) if changed is None else self.forgotten
        return self._replace(
            forgotten=forgotten, ids=tuple(sorted((n, each) for n, each in ids.items() if each is not None))
        )


class Ending(NamedTuple):
    """The request to end one transaction."""

    opened: OpenTransaction
    commit: bool

    @property
    def transactional_id(self) -> str:
        return self.opened.transactional_id


class Past(NamedTuple):
    """What a coordinator that is cut off answers: the earlier states of some ids, and pointers of some groups."""

    ids: tuple[tuple[str, Id | None], ...] = ()
    pointers: tuple[tuple[str, answers.CommittedOffset | None], ...] = ()


def initialized(model: Model, name: str) -> tuple[Model, OpenTransaction]:
    """Return the model after InitProducerId, and its answer (rules A.5)."""
    known = model.id(name)
    if known is None:
        identity = ProducerIdentity(_producer_id(model, name), 0)
    else:
        if known.state is S.ONGOING:
            model = timed_out(model, name)
            known = model.id(name)
            assert known is not None
        identity = ProducerIdentity(known.identity.producer_id, known.identity.producer_epoch + 1)
    return model.with_id(name, Id(identity)), OpenTransaction(name, identity, model.level)


def _producer_id(model: Model, name: str) -> int:
    """Return a producer id that depends on the name alone, so that the order of requests does not matter."""
    task = parse_task_id(name)
    if task is None:
        first = list(GROUPS).index(name) + 1
    else:
        # The name of a worker ends with a number, if it has had earlier ones.
        first = 10 * (int(task.run[1:]) + 1) + task.number + 1_000 * int(task.worker[1:] or 0)
    return first + 100 * model.forgotten.count(name)


def timed_out(model: Model, name: str) -> Model:
    """Return the model after a coordinator has aborted a transaction by itself (rules A.10)."""
    known = model.id(name)
    assert known is not None and known.state is S.ONGOING
    model = marked(model, name, known.identity, commit=False)
    fenced = ProducerIdentity(known.identity.producer_id, known.identity.producer_epoch + 1)
    return model.with_id(name, Id(fenced, S.COMPLETE_ABORT))


def ended(model: Model, ending: Ending) -> tuple[Model, EndAnswer]:
    """Return the model after EndTxn, and its answer (rules A.8)."""
    (name, identity, version), commit = ending
    known = model.id(name)
    if known is None or known.identity.producer_id != identity.producer_id:
        return model, EndAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # At level 0, the client ends by the old protocol what transactions V2 have begun.
    by_v2 = version >= 2 and model.level > 0
    distance = known.identity.producer_epoch - identity.producer_epoch
    done = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
    if not by_v2:
        if distance != 0:
            return model, EndAnswer(ErrorCode.PRODUCER_FENCED)
        if known.state is S.ONGOING:
            model = marked(model, name, identity, commit=commit)
            return model.with_id(name, Id(identity, done)), EndAnswer(ErrorCode.NONE, identity)
        is_repeated = known.state is done
        return model, EndAnswer(ErrorCode.NONE, identity) if is_repeated else _refusal(ErrorCode.INVALID_TXN_STATE)
    following = ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)
    if distance == 0:
        if known.state is S.ONGOING or not commit:
            # An abort of nothing raises the epoch too.
            model = marked(model, name, identity, commit=commit)
            return model.with_id(name, Id(following, done, goes_on=True)), EndAnswer(ErrorCode.NONE, following)
        return model, _refusal(ErrorCode.INVALID_TXN_STATE)
    if distance == 1 and known.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        is_repeated = known.state is done
        return model, EndAnswer(ErrorCode.NONE, known.identity) if is_repeated else _refusal(
            ErrorCode.INVALID_TXN_STATE
        )
    return model, _refusal(ErrorCode.PRODUCER_FENCED)


def _refusal(code: ErrorCode) -> EndAnswer:
    return EndAnswer(code)


def marked(model: Model, name: str, identity: ProducerIdentity, *, commit: bool) -> Model:
    """Return the model with the markers of a transaction in all its partitions."""
    group = GROUPS.get(name)
    if group is not None:
        ended_offsets = [each for each in model.pending if each[0] == group and commit]
        return model._replace(
            decisions=tuple(
                each._replace(is_committed=commit) if each.identity == identity and each.is_committed is None else each
                for each in model.decisions
            ),
            pointers=tuple(sorted({**dict(model.pointers), **dict(ended_offsets)}.items())),
            pending=tuple(each for each in model.pending if each[0] != group),
        )

    def ended_rows(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(
            row._replace(is_committed=commit)
            if row.identity.producer_id == identity.producer_id and row.is_committed is None
            else row
            for row in rows
        )

    # Apache Kafka 4.3 and 4.4 lose the marker of a partition without a leader (KAFKA-20734).
    lost = model.data[:1] if model.is_away else ()
    data = (*lost, *map(ended_rows, model.data[len(lost) :]))
    return model._replace(data=data, gone=tuple(map(ended_rows, model.gone)))


def leader_left(model: Model) -> Model:
    """Return the model while the first partition has no leader."""
    return model._replace(is_away=True)


def leader_returned(model: Model) -> Model:
    """Return the model after an election."""
    return model._replace(is_away=False, elections=model.elections + 1)


def with_new_topic(model: Model) -> Model:
    """Return the model after the output topic was deleted and made again; transactions in it stay as they are."""
    gone = tuple(old + rows for old, rows in zip(model.gone or ((),) * len(model.data), model.data, strict=True))
    return model._replace(remade=model.remade + 1, gone=gone, data=((),) * len(model.data))


def forgotten(model: Model, name: str) -> Model:
    """Return the model after a coordinator has forgotten an id."""
    return model.with_id(name, None)


def moved_back(model: Model, group: str, earlier: answers.CommittedOffset | None) -> Model:
    """Return the model after a group has lost its newest offset: by its retention, or its log was cut."""
    pointers = {**dict(model.pointers), group: earlier}
    return model._replace(pointers=tuple(sorted((name, each) for name, each in pointers.items() if each is not None)))


def with_level(model: Model, level: int) -> Model:
    """Return the model at another `transaction.version`."""
    return model._replace(level=level)


def held_up(model: Model) -> Model:
    """Return the model after another producer has begun a transaction in the first partition."""
    return model._replace(data=((Row(STRANGER, -1, 0),), *model.data[1:]))


def let_go(model: Model) -> Model:
    """Return the model after the other producer has committed."""
    return marked(model, "", STRANGER, commit=True)


def started(model: Model, write: answers.DecisionWrite, now_ms: int) -> tuple[Model, answers.Appended]:
    """Return the model after the records of a decision were sent, and the answer.

    A fenced driver appends none. The old protocol adds the partition first, which shows it at once.
    """
    known = model.id(write.transaction.transactional_id)
    if known is None or known.identity != write.transaction.producer:
        is_shown = write.transaction.transaction_version < 2
        return model, answers.Appended(ErrorCode.PRODUCER_FENCED if is_shown else ErrorCode.NONE)
    added = tuple(Record(write.transaction.producer, key, value) for key, value in write.records)
    model = model.with_id(write.transaction.transactional_id, Id(known.identity, S.ONGOING, now_ms))
    return model._replace(decisions=model.decisions + added), answers.Appended()


def appended(model: Model, write: answers.DecisionWrite) -> tuple[Model, answers.Appended]:
    """Return the model after the offset of a started decision was accepted, and the answer."""
    known = model.id(write.transaction.transactional_id)
    if known is None or known.identity.producer_id != write.transaction.producer.producer_id:
        return model, answers.Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.identity != write.transaction.producer or known.state is not S.ONGOING:
        return model, answers.Appended(ErrorCode.PRODUCER_FENCED)
    pointer = model.pointer(write.group_id)
    before = () if pointer is None else (pointer,)
    if write.metadata is not None:
        first = next(at for at, each in enumerate(model.decisions) if each.identity == write.transaction.producer)
        pending = answers.CommittedOffset(write.topic_partition, first, write.metadata)
        model = model._replace(pending=tuple(sorted((*model.pending, (write.group_id, pending)))))
    return model, answers.Appended(ErrorCode.NONE, before if write.reads_offsets else ())


def describe(model: Model, names: tuple[str, ...], past: Past) -> tuple[answers.Description, ...]:
    """Return the descriptions of ids, some by a coordinator that is cut off."""
    return tuple(_description(model, name, known) for name, known in _known(model, names, past))


def _known(model: Model, names: tuple[str, ...], past: Past) -> Iterator[tuple[str, Id]]:
    ids: dict[str, Id | None] = {**dict(model.ids), **dict(past.ids)}
    for name in names:
        known = ids.get(name)
        if known is not None:
            yield name, known


def _description(model: Model, name: str, known: Id) -> answers.Description:
    """Return the description of one id."""
    is_open = known.state is S.ONGOING
    places = frozenset[TopicPartition]()
    if is_open and name in GROUPS:
        places = frozenset({DECISIONS})
    elif is_open:
        task = parse_task_id(name)
        assert task is not None
        places = frozenset({TopicPartition(DATA, task.number)})
    return answers.Description(name, known.state, known.identity, TIMEOUT_MS, known.started_at_ms, places)


def view(model: Model, place: TopicPartition, offset: int) -> answers.CommittedView | None:
    """Return what a read_committed fetch at an offset returns."""
    rows = model.data[place.partition]
    stable = next((at for at, row in enumerate(rows) if row.is_committed is None), len(rows))
    traces = tuple(answers.BatchTrace(at, at, row.identity) for at, row in enumerate(rows) if offset <= at < stable)
    aborted = tuple(
        AbortedTransaction(row.identity.producer_id, at)
        for at, row in enumerate(rows)
        if row.is_committed is False and offset <= at < stable
    )
    return answers.CommittedView(stable, traces, aborted)


def unstable_ends(model: Model, place: TopicPartition, offsets: Mapping[int, int]) -> tuple[tuple[int, bool], ...]:
    """Return the markers of transactions that are behind an open one."""
    rows = model.data[place.partition]
    stable = next((at for at, row in enumerate(rows) if row.is_committed is None), len(rows))
    found = []
    for producer_id, at in sorted(offsets.items()):
        end = rows[at].is_committed if at < len(rows) else None
        if end is not None and at >= stable:
            found.append((producer_id, end))
    return tuple(found)


def read(model: Model, ask: asks.KafkaAsk[Any], past: Past) -> Any:
    """Return the answer to a request that changes nothing, as a hashable value.

    An answer ("raise", kind) is an error.
    """
    match ask:
        case asks.DescribeTransactions():
            return describe(model, tuple(ask.transactional_ids), past)
        case asks.CommittedOffsets() if ask.group_id in dict(model.pending) and not past.pointers:
            return ("raise", "unstable")
        case asks.CommittedOffsets() | asks.LastOffsets():
            found = {**dict(model.pointers), **dict(past.pointers)}.get(ask.group_id)
            return () if found is None else (found,)
        case asks.ReadRecords():
            records = list(enumerate(model.decisions))[ask.offset : ask.offset + ask.count]
            return tuple(answers.KeyedRecord(at, each.key, each.value, each.identity) for at, each in records)
        case asks.FindRecords():
            return _found(model, ask)
        case asks.ReplacedTopics():
            return tuple(name for name, ids in ask.written.items() if ids != {model.topic_id})
        case asks.OpenTransactions():
            return tuple(n for n, each in model.ids if each.state is S.ONGOING and n.startswith(ask.id_prefix))
        case asks.UsedIds():
            used = {S.ONGOING: False, S.COMPLETE_COMMIT: True}
            tasks = ((parse_task_id(name), each) for name, each in model.ids if each.state in used)
            return tuple((task, used[each.state]) for task, each in tasks if task is not None)
        case asks.Views():
            return tuple((place, view(model, place, at)) for place, at in sorted(ask.offsets.items()))
        case asks.UnstableEnds():
            return unstable_ends(model, ask.topic_partition, ask.offsets)
    raise AssertionError(f"the model has no answer to {ask}")


def _found(model: Model, ask: asks.FindRecords) -> tuple[Any, ...]:
    start = ask.starts.get(DECISIONS) or 0
    wanted = [
        (at, each)
        for at, each in enumerate(model.decisions)
        if at >= start and each.is_committed is not False and is_decision_of(each.key, QUERY)
    ]
    records = tuple((DECISIONS, answers.KeyedRecord(at, r.key, r.value)) for at, r in wanted if r.is_committed)
    unended = tuple((DECISIONS, answers.KeyedRecord(at, r.key, r.value)) for at, r in wanted if r.is_committed is None)
    return records, unended, len(model.decisions)
