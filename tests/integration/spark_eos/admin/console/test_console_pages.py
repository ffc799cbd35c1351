"""What the console shows of a cluster, live and as files, and what its actions do."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.command import main as eos_kafka
from spark_eos.admin.console import actions
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.console_scene import PREFIX, SCRIPT_ID, Scene, SceneQuery, staged
from tests.support.hanging import HANGING_SETTINGS
from tests.support.spark_eos.brokers import SETTINGS, running_broker
from tests.support.spark_eos.console import RunningConsole, running_console
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def address(broker_kind: str) -> Iterator[str]:
    """Run a broker that does not verify transactions, so that one can hang."""
    with running_broker(broker_kind, SETTINGS | HANGING_SETTINGS) as found:
        yield found


@pytest.fixture(scope="module")
def scene(address: str) -> Iterator[Scene]:
    with staged(address) as found:
        yield found


@pytest.fixture(scope="module")
def console(scene: Scene) -> Iterator[RunningConsole]:
    with running_console(scene.address, scene.decisions) as found:
        yield found


def test_overview_has_the_oldest_standstill_first_with_what_blocks_it(scene: Scene, console: RunningConsole) -> None:
    found = console.get(f"api/overview?filter={scene.orders}").document["lagging"]
    rows = found["rows"]
    assert [row["partition"] for row in rows] == [1, 0, 2, 3]
    assert [row["blocker"]["verdict"] for row in rows] == ["hanging", "live", "live", "live"]
    assert rows[1]["blocker"]["id"]["name"] == scene.open_id
    # No coordinator knows the age of what hangs; its last record is dated an hour ago, by its producer.
    assert [row["is_dated"] for row in rows] == [True, False, False, False]
    assert rows[0]["since_ms"] - rows[0]["dated_ms"] > 3_000_000, "a date is no age"
    assert (found["count"], rows[0]["last_stable_offset"], rows[0]["lag"]) == (4, 2, 1)


def test_hanging_transaction_comes_with_its_reason_and_the_command_that_ends_it(
    scene: Scene, console: RunningConsole
) -> None:
    [row] = console.get(f"api/overview?filter={scene.hanging_id}").document["hanging"]["rows"]
    assert (row["partition"], row["first_offset"], row["id"]["name"]) == (1, 2, scene.hanging_id)
    assert row["is_dated"]
    assert row["command"].endswith(f"abort --topic {scene.orders} --partition 1 --start-offset 2")
    assert "no marker will end it" in row["why"]


def test_groups_with_pending_offsets_are_named_with_the_transaction(scene: Scene, console: RunningConsole) -> None:
    [row] = console.get(f"api/overview?filter={quote(scene.group)}").document["groups"]["rows"]
    assert (row["topic"], row["id"]["name"]) == ("__consumer_offsets", scene.copier_id)
    assert row["pending"] == [str(TopicPartition(scene.orders, 0))]


def test_query_shows_its_decision_its_micro_batches_and_the_time_of_their_markers(
    scene: Scene, console: RunningConsole
) -> None:
    [row] = console.get(f"api/overview?filter={scene.query}").document["queries"]["rows"]
    assert (row["micro_batch"], row["state"], row["open"]) == (4, "decided, 2 of 2 open", 2)
    page = console.get(f"api/query?prefix={PREFIX}&query={scene.query}").document
    assert [each["micro_batch"] for each in page["micro_batches"]] == [4, 3, 2, 1, 0]
    newest, *earlier = page["micro_batches"]
    assert newest["last_marker_ms"] is None
    for each in earlier:
        assert each["started_at_ms"] <= each["decided_at_ms"] <= each["last_marker_ms"] + 1_000
        assert each["markers"] == 2


def test_transaction_page_has_every_partition_and_the_states_seen(scene: Scene, console: RunningConsole) -> None:
    page = console.get(f"api/transaction?id={scene.copier_id}").document
    topics = sorted(row["topic"] for row in page["partitions"]["rows"])
    assert topics == ["__consumer_offsets", scene.orders]
    assert all(row["is_listed"] for row in page["partitions"]["rows"])
    assert [each["state"] for each in page["history"]] == ["Ongoing"]
    # The partition of a transaction that hangs is on no coordinator's list.
    [row] = console.get(f"api/transaction?id={scene.hanging_id}").document["partitions"]["rows"]
    assert (row["is_listed"], row["finding"]["verdict"]) == (False, "hanging")


def test_orphan_that_was_seen_open_is_shown_as_aborted(scene: Scene, console: RunningConsole) -> None:
    with KafkaClient(ClientOptions((scene.address,))) as client:
        query = SceneQuery(scene, client)
        orphan = query.prepare(9, 0, worker="seen").transaction
        collector = console.documents.collector
        path = f"api/query?prefix={PREFIX}&query={scene.query}"

        def names(part: Callable[[Any], list[Any]]) -> list[str]:
            collector.look_again()
            return [each["id"]["name"] for each in part(console.get(path).document)]

        wait_until(
            lambda: orphan.transactional_id in names(lambda page: page["transactions_open"]["rows"]), "it is open"
        )
        query.abort(orphan)
        wait_until(lambda: orphan.transactional_id in names(lambda page: page["swept"]), "it is shown as aborted")


def test_timeline_is_read_further_from_where_the_last_look_ended(scene: Scene, console: RunningConsole) -> None:
    first, again = (console.get(f"api/partition?topic={scene.orders}&partition=2").document for _ in range(2))
    assert [each["outcome"] for each in first["timeline"]["transactions"]].count("committed") == 4
    assert first["timeline"]["transactions"] == again["timeline"]["transactions"]
    assert scene.query in first["summary"]


def test_unknown_names_are_an_answer_and_not_a_failure_of_the_server(console: RunningConsole) -> None:
    for path in ("partition?topic=none&partition=0", "partition?topic=none&partition=-1", "transaction?id=none"):
        answer = console.get(f"api/{path}")
        assert answer.status in (400, 502)
        assert answer.document["error"]


def test_requests_are_counted_and_stay_within_the_budget(console: RunningConsole) -> None:
    poll = console.get("api/overview").document["poll"]
    assert 0 < poll["requests_per_second"] <= poll["budget_per_second"] == 200
    assert poll["requests"] > 10


def test_pages_written_once_need_no_server_and_contain_no_markup_of_others(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["console", "--bootstrap-server", scene.address, "--decision-topic", scene.decisions]
    words += ["--requests-per-second", "500"]
    assert eos_kafka([*words, "--once", "--out", str(tmp_path / "ticket")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "ticket" / "index.html")
    written = {each.name: each.read_text(encoding="utf-8") for each in (tmp_path / "ticket").glob("*.html")}
    assert {"index.html", "partition-1.html", "transaction-1.html", "query-1.html"} <= written.keys()
    for text in written.values():
        assert SCRIPT_ID not in text
        assert "<img src=x" not in text
        assert "<svg onload" not in text
        assert "http" not in text.replace("127.0.0.1", "")


def test_confirmed_plans_end_what_was_shown_and_only_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A query that is dead needs no watching.
    monkeypatch.setattr(actions, "DecisionOperator", partial(DecisionOperator, watch_seconds=0))
    with staged(address) as scene, running_console(address, scene.decisions, allow_changes=True) as console:
        action = {"kind": "abort", "topic": scene.orders, "partition": 1, "start_offset": 2, "commit": False}
        plan = console.post("api/plan", action).document
        assert f"write an abort marker into {scene.orders}-1" in plan["steps"][0]
        assert console.post("api/carry-out", {"plan": plan["plan"]}).document["done"]
        repeated = console.post("api/carry-out", {"plan": plan["plan"]})
        assert (repeated.status, repeated.document["error"][:19]) == (409, "Nothing was changed")
        wait_until(
            lambda: not console.get(f"api/overview?filter={scene.hanging_id}").document["hanging"]["rows"],
            "the console has looked again",
        )
        live = console.post("api/plan", {**action, "partition": 0, "start_offset": 0})
        assert (live.status, "does not hang" in live.document["error"]) == (409, True)
        plan = console.post("api/plan", {"kind": "force-terminate", "id": scene.open_id}).document
        assert console.post("api/carry-out", {"plan": plan["plan"]}).document["done"]
        names = {"prefix": PREFIX, "query": scene.query}
        plan = console.post("api/plan", {"kind": "complete", **names}).document
        assert len(plan["steps"]) == 4
        done = console.post("api/carry-out", {"plan": plan["plan"], "reason": "a test"}).document
        assert done == {
            "done": True,
            "text": "2 transactions: 2 committed, 0 aborted or lost, 0 with an unknown outcome.",
        }
        refused = console.post("api/plan", {"kind": "abandon", "restart": "rewrite", **names})
        assert refused.status == 409


def test_transaction_of_the_sink_is_not_terminated_behind_its_decision(scene: Scene) -> None:
    with running_console(scene.address, scene.decisions, allow_changes=True) as console:
        name = f"{PREFIX}.{scene.query}.{scene.run}.w0.0"
        answer = console.post("api/plan", {"kind": "force-terminate", "id": name})
        assert (answer.status, "would lose rows" in answer.document["error"]) == (409, True)
