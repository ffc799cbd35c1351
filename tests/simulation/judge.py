"""Checks of a world at rest: what readers saw against what writers know, and the logs against themselves."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker_core.log.partition_log import PartitionLog
from broker_core.types import IsolationLevel, TopicPartition
from tests.simulation.history import POLL, READ_UNCOMMITTED, TXN, key_of
from tests.simulation.logs import check_logs
from tests.simulation.plan import INPUT, OUTPUT, SUNK
from tests.simulation.readers import visible
from tests.simulation.share_judge import check_share_groups
from tests.simulation.workers import MARK
from tests.support.cluster_state import check_marks, check_replay
from tests.support.history.checker import check
from tests.support.history.format import FAIL, INFO, INVOKE, OK, READ_COMMITTED, Op, Value

if TYPE_CHECKING:
    from tests.simulation.world import World

Seen = dict[str, list[tuple[int, str]]]
_ALL = 1 << 30
# How the sink's error names a transaction that is certainly lost.
_LOST = re.compile(r"task \d+: lost, \S+ producer (\d+) epoch (\d+)")


def judge(world: "World") -> list[str]:
    """Return all problems; no transaction may still be open."""
    if not world.server.is_running:
        return ["the cluster is not running at the end"]
    problems = [*check_marks(world, at_rest=True), *check_logs(world)]
    truth = {isolation: final_view(world, isolation) for isolation in (READ_COMMITTED, READ_UNCOMMITTED)}
    problems += check_polls(world, truth)
    problems += check_transactions(world, truth)
    problems += check_work(world, truth[READ_COMMITTED])
    problems += check_rows(world, truth[READ_COMMITTED])
    problems += check_lost(world)
    problems += world.death.check()
    problems += check_share_groups(world)
    problems += [f"{anomaly.kind}: {anomaly.story}" for anomaly in check(world.history.ops)]
    if not problems:
        problems += check_replay(world)
    return problems


def final_view(world: "World", isolation: str) -> Seen:
    """Read all partitions as a consumer would now, without the network."""
    places = (TopicPartition(topic, n) for topic, (count, _) in world.plan.topics.items() for n in range(count))
    now_ms = world.clock.now_ms()
    return {key_of(*each): records_of(world.server.cluster.logs.get(each, now_ms), isolation) for each in places}


def records_of(log: PartitionLog, isolation: str) -> list[tuple[int, str]]:
    """Return the offsets and values that a consumer of a partition reads."""
    level = IsolationLevel.READ_COMMITTED if isolation == READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED
    records: list[tuple[int, str]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, _ALL, level)
        aborted = [(each.first_offset, each.producer_id) for each in result.aborted or ()]
        more, after = visible(bytes(result.records), offset, isolation, aborted)
        records += more
        if after == offset:
            break
        offset = after
    return records


def check_polls(world: "World", truth: dict[str, Seen]) -> Iterator[str]:
    """Compare every poll with the final records: no poll saw other records, and none skipped a record."""
    seen: dict[tuple[str, str], list[tuple[int, str]]] = {}
    isolations: dict[str, str] = {}
    for op in world.history.ops:
        if (op.function, op.kind) == (POLL, OK):
            isolations[str(op.process)] = op.isolation
            for key, records in op.polled():
                seen.setdefault((str(op.process), key), []).extend((offset, str(value)) for offset, value in records)
    for (process, key), records in seen.items():
        expected = truth[isolations[process]][key]
        if records != expected[: len(records)]:
            at = next(i for i, one in enumerate(records) if i >= len(expected) or one != expected[i])
            there = expected[at] if at < len(expected) else "nothing"
            yield f"{process} saw {records[at]} in {key}, where at the end there is {there}"


def check_transactions(world: "World", truth: dict[str, Seen]) -> Iterator[str]:
    """Compare every transaction's outcome with the visible records: all of them once, or none."""
    places: dict[Value, list[tuple[str, int]]] = {}
    for key, records in truth[READ_COMMITTED].items():
        for offset, value in records:
            places.setdefault(value, []).append((key, offset))
    known: set[Value] = set()
    outcomes: dict[str, Op] = {}
    plans: dict[str, Op] = {}
    for op in world.history.ops:
        if op.function == "send":
            # A row of the sink may be in several transactions, so missing rows are checked by row and not by
            # transaction.
            known |= {value for _, _, value in op.sends()}
        if op.function == TXN:
            (plans if op.kind == INVOKE else outcomes)[str(op.transaction)] = op
    for txn, plan in plans.items():
        yield from _check_transaction(txn, plan, outcomes.get(txn), places)
        known |= {value for _, _, value in plan.sends()}
    for value, found in places.items():
        if len(found) > 1:
            yield f"{value} is there {len(found)} times: {found}"
        if value not in known:
            yield f"{value} at {found} has no writer"


def _check_transaction(
    txn: str, plan: Op, outcome: Op | None, places: dict[Value, list[tuple[str, int]]]
) -> Iterator[str]:
    kind = INFO if outcome is None else outcome.kind
    wanted = [value for _, _, value in plan.sends()]
    there = [value for value in wanted if value in places]
    missing = [value for value in wanted if value not in places]
    if kind == FAIL and there:
        yield f"aborted read: {txn} failed ({outcome.error if outcome else ''}), but {there} are visible"
    if kind == OK and missing:
        yield f"lost write: {txn} was committed, but {missing} are not there"
    if kind == INFO and there and missing:
        yield f"torn transaction: of {txn}, {there} are visible and {missing} are not"
    for key, offset, value in outcome.sends() if outcome is not None and kind == OK else ():
        if offset is not None and value in places and (key, offset) not in places[value]:
            yield f"{value} was acknowledged at {offset} of {key}, but is at {places[value]}"


def check_work(world: "World", there: Seen) -> Iterator[str]:
    """Check that the workers copied each record once."""
    if INPUT not in world.plan.topics:
        return
    carried = Counter(
        value.partition(MARK)[2]
        for key, records in there.items()
        if key.startswith(f"{OUTPUT}-")
        for _, value in records
    )
    for key, records in there.items():
        for offset, value in records if key.startswith(f"{INPUT}-") else ():
            if carried[value] != 1:
                yield f"{value}, at {offset} of {key}, was carried over {carried[value]} times"


def check_lost(world: "World") -> Iterator[str]:
    """Check that a query which stopped over lost transactions had lost each of them, by the coordinator's clock.

    Nothing else may end decided transactions: the sink neither sweeps them nor reuses their ids.
    """
    if not world.plan.has_query or world.actors["sink"].checkpoint.lost is None:
        return
    story = world.actors["sink"].checkpoint.lost
    lost = {(int(producer_id), int(epoch)) for producer_id, epoch in _LOST.findall(story)}
    if not lost:
        yield f"the query stopped over lost transactions and names none: {story}"
    for one in sorted(lost - world.watch.timed_out):
        yield f"the query stopped over the transaction of producer and epoch {one}, which has not timed out: {story}"


def check_rows(world: "World", there: Seen) -> Iterator[str]:
    """Check that the sink's query ended and that each of its rows is visible once."""
    if not world.plan.has_query:
        return
    checkpoint = world.actors["sink"].checkpoint
    if checkpoint.next_micro_batch is not None and checkpoint.lost is None:
        yield "the query did not end"
    for number, splits in enumerate(checkpoint.rows):
        for partition, value in (row for split in splits for row in split):
            found = [one for _, one in there[key_of(SUNK, partition)] if one == value]
            if (number in checkpoint.done and len(found) != 1) or len(found) > 1:
                yield f"row {value} of micro-batch {number} is there {len(found)} times"
