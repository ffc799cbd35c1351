"""The checks of a micro-batch that was decided before: whether the rows to write are the rows that were written.

A name alone does not prove that rows were written: names are used twice, checkpoints are copied, jobs run every day. So
a decision records for each task and topic the number of rows and their checksum, and a re-run of a decided micro-batch
is accepted only if its rows are the same. Which task had which row does not matter, nor does their order: Spark may
split a re-run differently, and readers see the same.

The name of a write in `foreachBatch` follows from its topic, so a write whose topic was changed may find its
micro-batch decided under another name, and must not write it again. But that may be the name of another write of the
function: certainly if this run has compared that decision, since a function makes its writes in the same order again.
Otherwise a write that is known from an earlier micro-batch goes on only if its rows are other ones: the order may have
changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from broker_core.types import counted
from spark_eos.errors import DifferentRowsError, OptionError, TransactionError
from spark_eos.sink.decision import Decision, utc
from spark_eos.sink.messages import AlreadyCommitted, Prepared, TaskMessage
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.asks import Compared, Monotonic, NoteCompared, Sleep, warn
from spark_eos.sink.protocol.decision_errors import SKIP, command, repair

CHECKSUMS: Final = 1 << 64
_LINES_SHOWN: Final = 10
# For the comparison of a decision by another write.
_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1
NO_TOPIC: Final = ""
# A remedy is read alone and followed to its end, so each says in its own sentence what it gives up.
_DISCARD: Final = (
    "If the rows differ because they depend on randomness, time or other systems, set discardDifferingRows=true: the "
    "rows already written stay, and the rows of the re-run are discarded, so they are lost if they differ for another "
    "reason"
)
_COPY: Final = (
    "If this checkpoint is a copy, or a copy of it was used first, turn this query into a separate one: replace the id "
    "in the checkpoint's file 'metadata' with a new UUID, and delete '.metadata.crc' next to it; from this micro-batch "
    "on it then writes its rows itself, a second time if they go to the same topic"
)
_A_RETRY: Final = (
    "If this is a retry, let the exception stop the query instead: the restarted query determines what was written"
)
_JOB: Final = (
    "If these are the rows that were written before, keep the jobId: under another one they are written a second time. "
    "A jobId identifies one set of rows: give other rows, for example of another day, their own jobId, for example "
    "with the topic and the date in it"
)
_OTHER_TOPIC_JOB: Final = (
    "Give a job that writes to another topic its own jobId, for example with the topic in it; the rows already written "
    "stay where they are"
)
_WRITTEN_JOB: Final = (
    "discardDifferingRows=true does not accept another number of rows. If the number depends on chance, the job is "
    "complete with the rows already written: do not run it again"
)
Rows: TypeAlias = Sequence[TopicRows]
# The number of rows, and their checksum.
_Total: TypeAlias = tuple[int, int]
_NOTHING: Final[_Total] = (0, 0)


def check_write(decision: Decision, run: str, write: str) -> None:
    """Refuse a second write under one name in one micro-batch of one run: one of the two would be dropped."""
    if write and decision.write and decision.run == run and decision.write != write:
        query, _, name = decision.query.partition("/")
        raise OptionError(
            f"Query {query} has already written under the name {name!r} in this run of micro-batch "
            f"{decision.micro_batch}: {counted(decision.record_count, 'record')} to {_names(sorted(decision.topics))}",
            checked=f"The decision of {utc(decision.decided_at_ms)}; nothing of this second write is visible",
            remedy=f"{_name_the_others(name)}. {_A_RETRY}",
        )


def check_first_write(query: str, finished: tuple[int, str] | None, write: tuple[int, str]) -> None:
    """Refuse a second write under one name if this process has committed or skipped the first one.

    After a restart the decision of the first write belongs to another run, so `check_write` cannot detect this.
    """
    if finished is None or finished[0] != write[0] or finished[1] == write[1]:
        return
    query, _, name = query.partition("/")
    raise OptionError(
        f"Query {query} has already written under the name {name!r} in this run of micro-batch {write[0]}",
        checked="The writes that this process has committed; nothing of this second write is visible",
        remedy=f"{_name_the_others(name)}. {_A_RETRY}",
    )


def has_same_rows(decision: Decision, messages: Sequence[TaskMessage]) -> bool:
    """Return whether the tasks may have the rows of a decision, whatever topics they are for."""
    before = _total(each.rows for each in decision.transactions)
    return before == _total(map(rows_of, messages))


def renamed_error(decision: Decision, query: str, messages: Sequence[TaskMessage]) -> OptionError:
    _, _, before = decision.query.partition("/")
    way = f'option("writeName", {before!r}) in foreachBatch' if before else "writeStream"
    topics = _names(sorted(decision.topics))
    return OptionError(
        f"{written_name(decision, is_job=False)} was written by run {decision.run} at {utc(decision.decided_at_ms)} to "
        f"{topics}, and now it would be written to {_names(sorted(topics_of(messages)))} as {query}",
        checked="The decisions of the same Spark query under other names; nothing was written. Without writeName, the "
        "topic is the name of a write in foreachBatch",
        remedy=f"Write the same rows to {topics} with {way}, as before, until the query has passed this micro-batch; "
        "change the write after that. If the function makes both writes, let it make that one first",
    )


def rolled_back_error(decision: Decision, micro_batch: int) -> TransactionError:
    """Return the error for a micro-batch older than the decided one: its rows may differ from the decided rows."""
    missing = counted(decision.micro_batch - micro_batch + 1, "micro-batch", "micro-batches")
    return TransactionError(
        f"Cannot write micro-batch {micro_batch} of query {decision.query}: micro-batch {decision.micro_batch} is "
        f"already decided, by run {decision.run} at {utc(decision.decided_at_ms)}",
        checked="The decision log; nothing that this run prepared becomes visible",
        remedy="If an older driver is still running, stop it. If the checkpoint was restored from a backup, it is at "
        f"least {missing} older than what was written: start from the checkpoint that wrote last, or use a new "
        f"checkpoint, which writes all rows again. {_COPY}",
    )


def why_closed(decision: Decision) -> str:
    word = decision.intervention
    if word is not None and decision.is_skipped:
        return f"{word.by} closed it at {utc(word.at_ms)} with `eos-kafka decisions abort --restart skip`"
    return f"run {decision.run} wrote and decided it at {utc(decision.decided_at_ms)}"


def check_topic(decision: Decision, topic: str | None, *, is_job: bool) -> None:
    """Refuse, before the rows are read, a topic that the decided micro-batch has not written to."""
    topics = sorted(decision.topics)
    if topic is not None and topics and topic not in topics:
        raise DifferentRowsError(
            f"{written_name(decision, is_job)} was already written, to {_names(topics)}; now it would be written to "
            f"topic '{topic}'",
            checked=f"The decision of run {decision.run} at {utc(decision.decided_at_ms)}; nothing was written",
            remedy=_OTHER_TOPIC_JOB if is_job else _query_remedy(decision),
        )


async def check_rows(
    decision: Decision, messages: Sequence[TaskMessage], *, is_job: bool, accept_difference: bool, by_task: bool = False
) -> None:
    """Raise if the rows of a re-run differ from the decided rows.

    With `accept_difference` they may differ, but not in number: a checkpoint from a backup, or a jobId that is used for
    other rows, shows as another number. With `by_task` some tasks are written again and others are not, so a row that
    moved from one task to another would be lost or written twice, and no difference is accepted.
    """
    decided = {t.split: t.rows for t in decision.transactions}
    found = {message.place.split: rows_of(message) for message in messages}
    difference = _difference(decided, found, is_same_plan=len(messages) == decision.split_count, by_task=by_task)
    if not difference:
        return
    before, now = _totals(decided.values()), _totals(found.values())
    are_moved = not _differing(before, now)
    has_as_many = all(
        before.get(topic, _NOTHING)[0] == now.get(topic, _NOTHING)[0] for topic in before.keys() | now.keys()
    )
    account = (
        f"{written_name(decision, is_job)} was already written, "
        f"by run {decision.run} at {utc(decision.decided_at_ms)}, "
        f"with {'its rows in other tasks' if are_moved else 'different rows'}: {difference}"
    )
    if accept_difference and has_as_many and not by_task:
        await warn(f"{account}. The rows of this re-run are discarded because of discardDifferingRows=true")
        return
    remedies = [] if are_moved else [_JOB if is_job else _query_remedy(decision)]
    if by_task:
        remedies += [
            "onLostTransaction=rewrite needs a re-run that gives each task the same rows",
            f"If that is not possible, {repair(decision)}",
        ]
    elif has_as_many:
        remedies.append(_DISCARD)
    else:
        remedies.append(_WRITTEN_JOB if is_job else _closing_remedy(decision, sum(count for count, _ in now.values())))
    raise DifferentRowsError(
        account,
        checked="The row counts and checksums in the decision, compared with the rows that the tasks of this run "
        "read; nothing was written",
        remedy=". ".join(remedies),
    )


async def note_compared(decision: Decision, run: str) -> None:
    await NoteCompared(_compared_name(decision, run))


async def uncompared(decisions: Iterable[Decision], run: str) -> list[Decision]:
    return [each for each in decisions if each.run != run and not await Compared(_compared_name(each, run))]


async def is_compared_soon(decision: Decision, run: str) -> bool:
    """Return whether a run compares a decision within some seconds: threads may make writes at the same time."""
    deadline = await Monotonic() + _WAIT_SECONDS
    while not (is_compared := await Compared(_compared_name(decision, run))) and await Monotonic() < deadline:
        await Sleep(_PAUSE_SECONDS)
    return is_compared


def _compared_name(decision: Decision, run: str) -> str:
    """Return a name without the revision, which the run may have raised since."""
    return repr((decision.prefix, decision.query, decision.run, *decision.rank[:2], decision.decided_at_ms, run))


def rows_of(message: TaskMessage) -> Rows:
    if isinstance(message, Prepared):
        return message.transaction.rows
    return message.rows if isinstance(message, AlreadyCommitted) else ()


def topics_of(messages: Sequence[TaskMessage]) -> frozenset[str]:
    return frozenset(each.topic for message in messages for each in rows_of(message))


def _difference(decided: Mapping[int, Rows], found: Mapping[int, Rows], *, is_same_plan: bool, by_task: bool) -> str:
    before, now = _totals(decided.values()), _totals(found.values())
    tasks = {
        split: _differing(_totals([decided.get(split, ())]), _totals([found.get(split, ())]))
        for split in sorted(decided.keys() | found.keys())
    }
    differing = sorted({topic for topics in tasks.values() for topic in topics}) if by_task else _differing(before, now)
    if not differing:
        return ""
    names = {topic: f"topic '{topic}'" if topic != NO_TOPIC else "rows without a topic" for topic in differing}
    lines = [f"{names[topic]}: {_change(before.get(topic, _NOTHING), now.get(topic, _NOTHING))}" for topic in differing]
    if len(lines) > _LINES_SHOWN:
        lines[_LINES_SHOWN:] = [counted(len(lines) - _LINES_SHOWN, "more topic")]
    if is_same_plan:
        differ = [str(split) for split, topics in tasks.items() if topics]
        lines.append(f"they differ in task{'s' if len(differ) > 1 else ''} {_shown(differ)}")
    else:
        lines.append("the number of tasks differs as well")
    return "; ".join(lines)


def _change(before: _Total, now: _Total) -> str:
    if before == now:
        return f"the same {counted(now[0], 'row')}"
    what = "different row" if before[0] == now[0] else "row"
    return f"{counted(before[0], 'row')} written before, now {counted(now[0], what)}"


def _differing(before: Mapping[str, _Total], now: Mapping[str, _Total]) -> list[str]:
    both = sorted(before.keys() | now.keys())
    return [topic for topic in both if before.get(topic, _NOTHING) != now.get(topic, _NOTHING)]


def _totals(parts: Iterable[Rows]) -> dict[str, _Total]:
    totals: dict[str, _Total] = {}
    for rows in parts:
        for each in rows:
            count, checksum = totals.get(each.topic, _NOTHING)
            totals[each.topic] = (count + each.record_count, (checksum + each.checksum) % CHECKSUMS)
    return totals


def _total(parts: Iterable[Rows]) -> _Total:
    together = [TopicRows(NO_TOPIC, each.record_count, each.checksum) for rows in parts for each in rows]
    return _totals([together]).get(NO_TOPIC, _NOTHING)


def _names(topics: Sequence[str]) -> str:
    return f"topic{'' if len(topics) == 1 else 's'} {_shown([repr(topic) for topic in topics])}"


def _shown(words: Sequence[str]) -> str:
    more = len(words) - _LINES_SHOWN
    return ", ".join(words[:_LINES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def written_name(decision: Decision, is_job: bool) -> str:
    if is_job:
        return f"The job with jobId={decision.query}"
    return f"Micro-batch {decision.micro_batch} of query {decision.query}"


def _name_the_others(name: str) -> str:
    # Under a new name, rows that are already written would be written again.
    return (
        f"If the foreachBatch function writes more than once under this name, keep the name {name!r} for the "
        "first write (without writeName it is the topic), and give each other write its own name with "
        'option("writeName", ...)'
    )


def _query_remedy(decision: Decision) -> str:
    _, _, name = decision.query.partition("/")
    return (f"{_name_the_others(name)}. " if name else "") + (
        "If the query was changed, run the old version until it has passed this micro-batch. If the checkpoint was "
        "restored from a backup, it is at least one micro-batch older than what was written: start from the "
        f"checkpoint that wrote last. {_COPY}"
    )


def _closing_remedy(decision: Decision, row_count: int) -> str:
    return (
        "discardDifferingRows=true does not accept another number of rows. If all rows of the micro-batch are already "
        "written, because their number depends on chance, or because the source has lost records since, close it with "
        f"`{command(decision, *SKIP)}`: the {counted(row_count, 'row')} of the re-run are then discarded, and are lost "
        "if they are not yet written"
    )
