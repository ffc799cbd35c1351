"""`eos-kafka watch` on a broker: what it finds, its lines, and its screen at a terminal."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker_core import EmbeddedBroker, Error
from broker_core.types import TopicPartition
from spark_eos.admin import watch, watch_model
from spark_eos.admin.command import ExitCode, main
from spark_eos.admin.watch_model import Order, Watcher, WatchSnapshot, waited_text
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthorizationError, OptionError, TopicError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from tests.support.both_brokers import Kafka as Plain
from tests.support.clients import make_topic, unique
from tests.support.hanging import HANGING_SETTINGS, hang, kafka_with_late_writes, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.terminal import COLUMNS, DEADLINE_S, ROWS, Terminal
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
SCREEN = (COLUMNS, ROWS)


@pytest.fixture(scope="module")
def address(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_with_late_writes(broker_kind, tmp_path_factory.mktemp("watched")) as address:
        yield address


@pytest.fixture
def scene(address: str) -> Iterator["Scene"]:
    with RawClient(address) as raw, KafkaClient(ClientOptions((address,))) as client:
        yield Scene(address, raw, client)


class Scene:
    """A topic with three partitions: a live transaction in 0, a hanging one in 2."""

    def __init__(self, address: str, raw: RawClient, client: KafkaClient) -> None:
        self.address = address
        self.topic = make_topic(Plain(address), partitions=3)
        self.live = RawSession(raw, unique("live"))
        self.identity = open_up(self.live, self.topic, 0)
        late = RawSession(raw, unique("late"))
        hang(late, self.topic, partition=2, age_ms=HOUR_MS)
        self.watcher = Watcher(client, [self.topic])

    def place(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


def test_watcher_finds_lags_open_transactions_and_verdicts(scene: Scene) -> None:
    found = scene.watcher.look()
    assert (found.partition_count, found.counts(), found.trouble) == (3, "2 open transactions, 1 hanging", "")
    hanging, live = found.ordered(Order.AGE)
    assert (hanging.topic_partition, live.topic_partition) == (scene.place(2), scene.place(0))
    assert (hanging.last_stable_offset, hanging.lag) == (2, 1)
    assert (live.last_stable_offset, live.lag) == (0, 1)
    assert hanging.oldest is not None and hanging.oldest.hangs
    assert waited_text(hanging, found.taken_at_ms) == ">0 s", "the record of an hour ago is no evidence"
    assert live.oldest is not None
    assert (live.oldest.verdict.value, live.oldest.transactional_id) == ("live", scene.live.transactional_id)
    assert [each.topic_partition for each in found.ordered(Order.NAME)] == [scene.place(0), scene.place(2)]
    assert scene.live.end_until_done(scene.identity, commit=True, version=4)[0] == 0

    def only_the_hanging_one_is_left() -> bool:
        return [each.topic_partition for each in scene.watcher.look().lagging] == [scene.place(2)]

    wait_until(only_the_hanging_one_is_left, "the marker is written")


def test_order_by_verdict_and_lag(scene: Scene) -> None:
    hanging, live = scene.watcher.look().ordered(Order.AGE)
    wide = replace(live, high_watermark=100)
    snapshot = WatchSnapshot(1, 2, (wide, hanging))
    assert snapshot.ordered(Order.VERDICT) == [hanging, wide]
    assert snapshot.ordered(Order.LAG) == [wide, hanging]


def test_watcher_without_rights_shows_offsets_without_verdicts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: KafkaClient, opened: object, *, max_in_flight: int) -> None:
        raise AuthorizationError("The principal may not see every id", remedy="Grant DESCRIBE")

    monkeypatch.setattr(watch_model, "judge", refuse)
    found = scene.watcher.look()
    assert {each.oldest.verdict.value for each in found.lagging if each.oldest} == {"unknown"}
    assert len(found.lagging) == 2
    assert found.trouble == "No verdicts: The principal may not see every id. Grant DESCRIBE"


def test_watcher_keeps_the_last_look_when_brokers_do_not_respond(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scene.watcher.look()

    def unreachable(*_: object, **__: object) -> None:
        raise UnreachableError("No broker")

    monkeypatch.setattr(KafkaClient, "metadata", unreachable)
    again = scene.watcher.look()
    assert (again.lagging, again.taken_at_ms) == (found.lagging, found.taken_at_ms)
    assert again.trouble.startswith("No broker")
    with pytest.raises(UnreachableError):
        replace(scene.watcher, _last=WatchSnapshot(0)).look()


def test_partition_that_loses_its_leader_is_not_searched() -> None:
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2}) as kafka:
        with RawClient(kafka.bootstrap_servers) as raw:
            open_up(RawSession(raw, "id"), "t", 0, 1)
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            watcher = Watcher(client, ["t"])
            assert len(watcher.look().lagging) == 2
            with kafka.without_leader(("t", 1)):
                look = watcher.look()
            assert [each.topic_partition for each in look.lagging] == [TopicPartition("t", 0)]
            assert look.trouble == "Partitions without a leader, or whose leader does not respond: 1"
            assert len(watcher.look().lagging) == 2


def test_topic_that_is_deleted_stops_no_look_at_the_others() -> None:
    with (
        EmbeddedBroker(topics={"gone": 1, "kept": 1}) as kafka,
        KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client,
    ):
        watcher = Watcher(client, ["gone", "kept"])
        assert watcher.look().partition_count == 2
        kafka.delete_topic("gone")
        with RawClient(kafka.bootstrap_servers) as raw:
            open_up(RawSession(raw, "later"), "kept", 0)
            found = watcher.look()
        assert [each.topic_partition for each in found.lagging] == [TopicPartition("kept", 0)]
        assert found.trouble == "Deleted, or hidden from this principal: gone"


def test_topic_that_one_answer_does_not_know_is_looked_for_again() -> None:
    with (
        EmbeddedBroker(topics={"kept": 1}) as kafka,
        KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client,
        RawClient(kafka.bootstrap_servers) as raw,
    ):
        open_up(RawSession(raw, "open"), "kept", 0)
        watcher = Watcher(client, ["kept"])
        first = watcher.look()
        with kafka.fault(api="Metadata", action=Error("UNKNOWN_TOPIC_OR_PARTITION"), times=1) as fault:
            second = watcher.look()
        assert fault.hits == 1
        assert second.trouble == ""
        assert [each.since_ms for each in second.lagging] == [each.since_ms for each in first.lagging]


def test_topic_that_does_not_exist_is_an_error(scene: Scene) -> None:
    scene.watcher.topics = [unique("none")]
    with pytest.raises(TopicError):
        scene.watcher.look()


def test_lines_are_printed_without_a_terminal(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "--bootstrap-server", scene.address, "--topic", scene.topic, "--count", "2", "--interval", "0.1"]
    assert main(words) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("UTC: 3 partitions, 2 with a lag, 2 open transactions, 1 hanging")
    assert lines[1].startswith(f"  {scene.topic}-2: last stable offset 2, lag 1, 1 open transaction, the oldest of ")
    assert " by its producer, 1h 00m ago: hanging" in lines[1]
    assert f" the oldest of '{scene.live.transactional_id}' open " in lines[2] and lines[2].endswith(": live")
    assert "\x1b" not in "".join(lines)
    assert main([*words, "--color", "always"]) == ExitCode.DONE
    assert "\x1b[31;1mhanging\x1b[0m" in capsys.readouterr().out


def test_screen_sorts_explains_and_quits(scene: Scene) -> None:
    from spark_eos.admin.watch_screen import WatchScreen

    app = WatchScreen(
        scene.watcher.look, OperatorCommands((scene.address,), None), scene.watcher.look(), interval_seconds=600
    )

    def shown() -> str:
        return "\n".join("".join(part.text for part in line) for line in app.screen._compositor.render_strips())

    def first_row() -> str:
        return shown().splitlines()[3]

    async def use() -> None:
        async with app.run_test(size=SCREEN) as pilot:
            await pilot.pause()
            assert all(len(line) == SCREEN[0] for line in shown().splitlines())
            assert "2 of 3 partitions with a lag, 2 open transactions, 1 hanging" in shown()
            assert f"{scene.topic}-2"[-19:] in first_row() and "hanging" in first_row()
            assert "it hangs" in shown() and "To end it: eos-kafka transactions" in shown().replace("\n", " ")
            for key, word in (("n", "name"), ("l", "lag"), ("v", "verdict"), ("a", "age")):
                await pilot.press(key)
                assert f"sorted by {word}" in shown(), key
            await pilot.press("n")
            assert "live" in first_row()
            assert "it hangs" in shown(), "the cursor stays on its partition"
            await pilot.press("up")
            await pilot.pause()
            assert "it does not hang" in shown()
            scene.live.end_until_done(scene.identity, commit=True, version=4)
            await pilot.press("r")
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert "1 of 3 partitions with a lag" in shown()
            await pilot.press("p")
            assert "paused" in shown()
            await pilot.resize_terminal(40, 10)
            assert "q Quit" in shown() or "1 of 3" in shown()
            await pilot.press("q")

    asyncio.run(asyncio.wait_for(use(), DEADLINE_S))
    assert app.return_code == 0


def test_command_opens_the_screen_at_a_terminal_and_leaves_it(scene: Scene) -> None:
    words = ("watch", "--bootstrap-server", scene.address, "--topic", scene.topic, "--interval", "0.2")
    with Terminal(sys.executable, "-m", "spark_eos.admin", *words) as terminal:
        terminal.read_until(lambda text: "2 of 3 partitions with a lag" in text and "hanging" in text)
        terminal.write("q")
        assert terminal.wait() == ExitCode.DONE
        assert "\x1b[?1049l" in terminal.text, "the terminal is as before"


def test_missing_library_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "spark_eos.admin.watch_screen", raising=False)
    with pytest.raises(
        OptionError, match=r"not installed: textual. Run `pip install '\.\[cli\]'` in a clone.*, or add --plain"
    ):
        watch._screen()
