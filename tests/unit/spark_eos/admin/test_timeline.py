"""The timeline of a log, and the text on its page, without a broker."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.records.control import ControlType, EndTxnMarker
from broker_core.records.header import BatchHeader
from broker_core.types import TopicPartition
from spark_eos.admin.command import _parser
from spark_eos.admin.timeline_page import (
    LogReading,
    PlainStretch,
    Timeline,
    TransactionBar,
    TransactionOutcome,
    document_of,
    page,
    summary_of,
)
from spark_eos.client.inspection import TransactionDescription
from spark_eos.errors import OptionError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.transactions.findings import Owner, ended_finding, hanging_finding, live_finding

TP = TopicPartition("orders", 3)
TRANSACTIONAL, CONTROL = 0x10, 0x20
NOW_MS = 1_700_000_000_000


def header(offset: int, count: int, *, producer_id: int = -1, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS + offset,
        max_timestamp=NOW_MS + offset + count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        record_count=count,
    )


class Log:
    """A reading of a log to which batches are added one by one."""

    def __init__(self, start: int = 0) -> None:
        self.offset = start
        self.reading = LogReading()

    def data(self, producer_id: int, count: int = 1, epoch: int = 0) -> None:
        attributes = TRANSACTIONAL if producer_id >= 0 else 0
        self.reading.take_data(header(self.offset, count, producer_id=producer_id, epoch=epoch, attributes=attributes))
        self.offset += count

    def marker(self, producer_id: int, kind: ControlType, epoch: int = 0) -> None:
        batch = header(self.offset, 1, producer_id=producer_id, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
        self.reading.take_marker(batch, EndTxnMarker(kind, 5))
        self.offset += 1


def a_timeline(bars: Sequence[TransactionBar], *, stable: int, high: int, **more: object) -> Timeline:
    fields: dict[str, object] = {
        "topic_partition": TP,
        "taken_at_ms": NOW_MS + 60_000,
        "commands": OperatorCommands(("kafka:9092",)),
        "start": 0,
        "log_start_offset": 0,
        "last_stable_offset": stable,
        "high_watermark": high,
        "transactions": bars,
        "plain": [],
        "owners": {},
        "findings": {},
    }
    return Timeline(**(fields | more))  # type: ignore[arg-type]


def described(producer_id: int, state: str, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription("an-id", 0, state, producer_id, 1, 900_000, NOW_MS, partitions)


def test_timeline_separates_interleaved_producers_and_epochs() -> None:
    log = Log()
    log.data(1, 2)
    log.data(2, 3)
    log.data(1, 4)
    log.data(-1, 2)
    log.data(-1, 1)
    # Under transactions V2 the marker has the epoch of the next transaction.
    log.marker(1, ControlType.COMMIT, epoch=1)
    log.marker(2, ControlType.ABORT)
    log.data(1, 1, epoch=1)
    first, second, third = log.reading.transactions
    assert (first.outcome, first.marker_offset) == (TransactionOutcome.COMMITTED, 12)
    assert (first.first_offset, first.last_offset) == (0, 8)
    assert (first.record_count, first.batch_count, first.size_bytes) == (6, 2, 224)
    assert (first.coordinator_epoch, first.marker_timestamp_ms) == (5, NOW_MS + 13)
    assert (second.outcome, second.first_offset, second.marker_offset) == (TransactionOutcome.ABORTED, 2, 13)
    assert (third.outcome, third.producer_epoch, third.marker_offset) == (TransactionOutcome.OPEN, 1, None)
    assert log.reading.plain == [PlainStretch(9, 11, 3, NOW_MS + 9, NOW_MS + 12)]


def test_marker_without_records_shows_a_transaction_that_began_earlier() -> None:
    log = Log(start=50)
    log.marker(1, ControlType.COMMIT)
    (bar,) = log.reading.transactions
    assert (bar.first_offset, bar.marker_offset, bar.record_count) == (None, 50, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort"])), max_size=60))
def test_timeline_bars_cover_the_log_without_overlap(steps: list[tuple[int, str]]) -> None:
    log = Log()
    expected: list[tuple[int, list[int], str]] = []
    current: dict[int, tuple[int, list[int], str]] = {}
    for producer_id, step in steps:
        if producer_id not in current:
            current[producer_id] = (producer_id, [], "open")
            expected.append(current[producer_id])
        if step == "data":
            current[producer_id][1].append(log.offset)
            log.data(producer_id)
        else:
            at = expected.index(current.pop(producer_id))
            expected[at] = (producer_id, expected[at][1], "committed" if step == "commit" else "aborted")
            log.marker(producer_id, ControlType.COMMIT if step == "commit" else ControlType.ABORT)
    assert [
        (bar.producer_id, bar.first_offset, bar.record_count, bar.outcome.value) for bar in log.reading.transactions
    ] == [(pid, offsets[0] if offsets else None, len(offsets), outcome) for pid, offsets, outcome in expected]


def test_summary_names_the_blocking_transaction_and_its_coordinator_state() -> None:
    bars = [TransactionBar(8, 2, first_offset=30), TransactionBar(7, 1, first_offset=20)]
    transaction = bars[1].transaction(TP)
    owner = Owner(1, described(7, "Ongoing", TP))

    def summary(finding: object, **more: object) -> str:
        return summary_of(a_timeline(bars, stable=20, high=100, findings={7: finding} if finding else {}, **more))

    assert summary(live_finding(transaction, [owner])) == (
        "The last stable offset of orders-3 is 20, 80 offsets below the high watermark 100. The blocking transaction "
        "has been open since offset 20. It is the transaction of 'an-id' (producer id 7, epoch 1), in state Ongoing "
        "for 60 s, timeout 900 s. If its producer is dead, `eos-kafka transactions --bootstrap-server kafka:9092 "
        "force-terminate --transactional-id=an-id` ends it."
    )
    command_line = OperatorCommands(("kafka:9092",)).abort(TP, 20)
    forgotten = summary(hanging_finding(transaction, []))
    assert "and it hangs: no coordinator knows its producer id" in forgotten
    assert forgotten.endswith(f"`{command_line}` ends it.")
    elsewhere = Owner(1, described(7, "Ongoing", TopicPartition("orders", 0)))
    assert "its coordinator has no open transaction with this partition" in summary(
        hanging_finding(transaction, [elsewhere])
    )
    committed = TransactionDescription("an-id", 0, "CompleteCommit", 7, 2, 900_000, NOW_MS, ())
    lost = summary(hanging_finding(transaction, [Owner(1, committed)]))
    assert "it was committed and that the commit marker was lost" in lost
    assert lost.endswith(f"`{command_line} --commit` ends it.")
    assert summary(ended_finding(transaction)).endswith("It ended in the meantime.")
    assert summary(None, untold="not allowed").endswith("Its coordinator could not be queried: not allowed")


def test_summary_without_a_blocking_transaction() -> None:
    assert summary_of(a_timeline([], stable=100, high=100)) == (
        "No transaction blocks the last stable offset of orders-3: it has reached the high watermark, 100."
    )
    ended = TransactionBar(7, 1, first_offset=20, outcome=TransactionOutcome.COMMITTED, marker_offset=99)
    assert summary_of(a_timeline([ended], stable=20, high=100)).endswith(
        "The blocking transaction ended while the log was read."
    )


def test_names_of_the_json_are_in_snake_case() -> None:
    bars = [TransactionBar(7, 1, first_offset=20)]
    document = document_of(a_timeline(bars, stable=20, high=100))
    names = [*document, *document["transactions"][0]]
    assert {"taken_at_ms", "last_stable_offset", "first_offset"} <= set(names)
    assert [name for name in names if name != name.lower()] == []


def test_names_are_escaped_in_the_html_page() -> None:
    name = "</script><b>@DATA@ & 'x'"
    timeline = a_timeline([TransactionBar(7, 1, first_offset=20)], stable=20, high=100, owners={7: name})
    text = page(timeline)
    assert text.count("</script>") == 2
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["transactions"][0]["transactional_id"] == name
    assert "<b>" not in text
    assert "https:" not in text and "http:" not in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--partition", "-1"], "--partition is -1"),
        (["--last", "0"], "--last is 0"),
        (["--from-offset", "-5"], "--from-offset is -5"),
    ],
)
def test_wrong_usage_is_refused_before_any_request(more: list[str], words: str, tmp_path: Path) -> None:
    chosen = _parser().parse_args(
        ["timeline", "orders", "--out", str(tmp_path / "out.html"), "--bootstrap-server", "localhost:1", *more]
    )
    with pytest.raises(OptionError, match=words):
        chosen.run(chosen)
