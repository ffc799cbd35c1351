"""What the console keeps in memory, and the budget of its requests, without a broker."""

import struct
from dataclasses import replace

import pytest

from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.admin.console.budget import RequestBudget
from spark_eos.admin.console.collector import SeenState, StateHistory
from spark_eos.admin.console.decision_tail import MOST_ENDS, MOST_KEPT, MicroBatch, QueryState
from spark_eos.admin.console.log_views import offset_key
from spark_eos.admin.console.pages import FileLinks, LiveLinks, page
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange
from spark_eos.transactions.standstills import Standstills
from tests.support.clocks import StandingClock, runtime_by

TP = TopicPartition("orders", 0)


def prepared(split: int) -> PreparedTransaction:
    written = WrittenRange("orders", split, 0, 9, 10)
    return PreparedTransaction(
        split, OpenTransaction(f"p.q.r.w{split}.0", ProducerIdentity(split, 0), 2), 60_000, 1_000 + split, (written,)
    )


DECISION = Decision("p", "q", "r", 0, 1, 9, 5_000, tuple(prepared(split) for split in range(9)))


def test_budget_delays_requests_beyond_its_rate_and_counts_all() -> None:
    clock = StandingClock()
    budget = RequestBudget(10, runtime_by(clock))
    waits = [budget.take() for _ in range(30)]
    assert waits[:10] == [0.0] * 10
    assert waits[10:] == pytest.approx([number / 10 for number in range(1, 21)])
    clock.seconds += 10
    assert budget.take() == 0
    assert budget.total == 31
    assert budget.recent_per_second <= 10


def test_history_keeps_changes_only_and_takes_the_time_of_the_first_sight() -> None:
    history = StateHistory()
    history.note("id", SeenState(1, "Ongoing", 7, None))
    history.note("id", SeenState(2, "Ongoing", 7, 4, 1))
    history.note("id", SeenState(3, "Ongoing", 7, None))
    history.note("id", SeenState(4, "Ongoing", 7, 4, 2))
    history.note("id", SeenState(5, "CompleteCommit", 7, 5, 0))
    assert [(each.at_ms, each.state, each.producer_epoch) for each in history.matching("id")["id"]] == [
        (1, "Ongoing", 4),
        (5, "CompleteCommit", 5),
    ]


def test_history_is_bounded_in_ids_and_in_states() -> None:
    history = StateHistory(most_ids=3, most_states=2)
    for number in range(5):
        for epoch in range(4):
            history.note(f"id-{number}", SeenState(epoch, "Ongoing", 7, epoch))
    assert history.matching("id").keys() == {"id-2", "id-3", "id-4"}
    assert [each.producer_epoch for each in history.matching("id")["id-4"]] == [2, 3]
    assert history.matching("id-3").keys() == {"id-3"}


def test_wait_of_a_partition_counts_from_when_its_lso_was_first_seen_there() -> None:
    waiting = Standstills()
    waiting.note({TP: 5}, {TP: 9}, [TP], 1_000)
    waiting.note({TP: 5}, {TP: 20}, [TP], 2_000)
    assert (waiting.known[TP].since_ms, waiting.known[TP].lag) == (1_000, 15)
    waiting.note({TP: 6}, {TP: 20}, [TP], 3_000)
    assert waiting.known[TP].since_ms == 3_000
    waiting.note({TP: 20}, {TP: 20}, [TP], 4_000)
    assert waiting.known == {}


def test_micro_batches_of_a_query_are_bounded_and_keep_the_newest_revision() -> None:
    query = QueryState("p", "q")
    for number in range(MOST_KEPT + 20):
        query = query.with_decision(replace(DECISION, micro_batch=number))
    query = query.with_decision(replace(DECISION, micro_batch=MOST_KEPT + 19, revision=1, completed_at_ms=6_000))
    query = query.with_decision(replace(DECISION, micro_batch=MOST_KEPT + 19))
    assert [each.decision.micro_batch for each in query.micro_batches] == list(range(20, MOST_KEPT + 20))
    assert query.micro_batches[-1].decision.completed_at_ms == 6_000
    assert query.newest is not None
    assert query.newest.revision == 1


def test_few_ends_of_a_micro_batch_are_kept_spread_over_its_transactions() -> None:
    summary = MicroBatch.of(DECISION)
    assert [each.producer_id for each in summary.ends] == [0, 3, 6]
    assert len(summary.ends) <= MOST_ENDS
    assert (summary.started_at_ms, summary.record_count, summary.transaction_count) == (1_000, 90, 9)


def test_keys_of_offsets_differ_from_other_records_of_a_group() -> None:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value.encode())) + value.encode()

    key = struct.pack(">h", 1) + text("gruppe-ä") + text("orders") + struct.pack(">i", 3)
    assert offset_key(key) == ("gruppe-ä", TopicPartition("orders", 3))
    for other in (b"", b"\x00", struct.pack(">h", 2) + text("group"), key[:-1]):
        assert offset_key(other) is None


def test_links_carry_any_name_and_files_none() -> None:
    name = "a b&c=d/../<script>#?"
    assert LiveLinks().page("transaction", id=name) == "transaction?id=a+b%26c%3Dd%2F..%2F%3Cscript%3E%23%3F"
    files = FileLinks(most_pages=1)
    assert (files.page("transaction", id=name), files.page("transaction", id="other")) == ("transaction-1.html", None)
    assert files.page("transaction", id=name) == "transaction-1.html"


def test_data_cannot_end_the_element_it_is_in() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    text = page("transaction", hostile, {"id": hostile})
    assert text.count("</script>") == 3
    assert "alert(1)</script>" not in text
    assert "&lt;/script&gt;" in text
