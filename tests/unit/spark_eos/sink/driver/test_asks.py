"""Each ask of the protocol names a method of the cluster, and each case of its tables has a row."""

import inspect
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spark_eos.errors import OptionError, UnansweredError
from spark_eos.metrics import SINK_METRICS
from spark_eos.open_transaction import EndAnswer
from spark_eos.runtime import REAL
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision, Restart
from spark_eos.sink.decision import Intervention as Word
from spark_eos.sink.decision import OperatorAction as Action
from spark_eos.sink.performing import perform
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.action_table import rules_of
from spark_eos.sink.protocol.answers import Appended, DecisionWrite
from spark_eos.sink.protocol.decision_errors import UndecidedError
from spark_eos.sink.protocol.ownership import AFTER_FENCING, COURSES, Holding
from spark_eos.sink.protocol.retry_policy import RETRIES
from spark_eos.sink.protocol.settlement import FATES
from tests.support.spark_eos.driving import Nowhere
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import committer_of, prepare

PAGE = Path(__file__).parents[5] / "docs" / "protocol" / "sink.md"
WORDS = (None, Word(Action.COMPLETE, "", 0), Word(Action.ABORT, "", 0), Word(Action.ABORT, "", 0, "", Restart.SKIP))
SETTLEMENTS = [rules_of(Decision("p", "q", "r", 0, 1, 0, 0, (), intervention=word)) for word in WORDS]


def kafka_asks() -> list[type[asks.KafkaAsk[object]]]:
    found = [each for each in vars(asks).values() if isinstance(each, type) and issubclass(each, asks.KafkaAsk)]
    return [each for each in found if each is not asks.KafkaAsk]


@pytest.mark.parametrize("cluster", [KafkaCluster, MemoryCluster])
@pytest.mark.parametrize("ask", kafka_asks(), ids=lambda each: each.__name__)
def test_fields_of_an_ask_are_the_parameters_of_its_method(ask: type[asks.KafkaAsk[object]], cluster: type) -> None:
    parameters = list(inspect.signature(getattr(cluster, ask.method)).parameters)[1:]
    assert [each.name for each in fields(ask)] == parameters  # type: ignore[arg-type]


def test_error_of_a_performer_is_raised_where_the_ask_was_awaited() -> None:
    async def protocol() -> str:
        try:
            await asks.InitProducerId("id", 1)
        except AttributeError as error:
            await asks.Sleep(0)
            return error.name or ""
        return ""

    assert perform(Nowhere(), protocol()) == "init_producer_id"


def test_tables_of_ownership_have_a_row_for_each_case() -> None:
    assert set(COURSES) == set(Holding)
    assert set(AFTER_FENCING) == set(product((False, True), repeat=2))


def test_rows_of_tables_are_on_the_page_and_have_tests() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    shown = {row[0]: row[-1].strip("`") for row in rows if row[0][-1].isdigit()}
    tables = [*FATES.values(), *RETRIES]
    tables += [each for rules in SETTLEMENTS for each in rules]
    named = [each.rule for each in tables] + [each.value for each in (*COURSES, *AFTER_FENCING.values())]
    assert set(named) == set(shown)
    for name, test in shown.items():
        file, _, function = test.partition("::")
        assert f"\ndef {function}(" in (Path(__file__).parent / file).read_text(), name


def test_decision_whose_sending_fails_is_aborted_before_anything_else_is_asked() -> None:
    """An open decision blocks the readers of the decision topic, and a verification may take long."""
    asked: list[str] = []

    class Broken(MemoryCluster):
        def start_decision(self, write: DecisionWrite) -> Appended:
            super().start_decision(write)
            asked.append("start")
            raise UnansweredError("the coordinator is gone")

        def describe_transactions(self, *args: Any, **options: Any) -> Any:
            asked.append("describe")
            return super().describe_transactions(*args, **options)

        def end_decision(self, write: DecisionWrite, commit: bool) -> EndAnswer:
            asked.append("commit" if commit else "abort")
            return super().end_decision(write, commit)

    cluster = Broken()
    messages = prepare(cluster, 0)
    with pytest.raises(UndecidedError, match="the coordinator is gone"):
        committer_of(cluster).commit(messages, 0)
    assert asked[:2] == ["start", "abort"] and "commit" not in asked


def test_refused_second_write_changes_no_metric(cluster: MemoryCluster) -> None:
    first = committer_of(cluster)
    first.own.write = "one"
    first.commit(prepare(cluster, 0), 0)
    again = replace(first, own=replace(first.own, write="two"))
    before = SINK_METRICS.snapshot()
    with pytest.raises(OptionError, match="already written under the name"):
        again.commit(prepare(cluster, 0), 0)
    assert SINK_METRICS.snapshot() == before


def test_interrupt_between_two_asks_ends_the_coroutine() -> None:
    ended: list[str] = []

    class Interrupted:
        runtime = REAL

    async def protocol() -> None:
        try:
            await asks.Sleep(0)
        finally:
            ended.append("here")

    class Coroutine:
        def __init__(self) -> None:
            self.inner = protocol()

        def send(self, _: object) -> object:
            self.inner.send(None)
            raise KeyboardInterrupt

        def close(self) -> None:
            self.inner.close()

    with pytest.raises(KeyboardInterrupt):
        perform(Interrupted(), Coroutine())  # type: ignore[arg-type]
    assert ended == ["here"]


def test_unknown_ask_is_an_error() -> None:
    class Unknown(asks.Ask[None]):
        pass

    async def protocol() -> None:
        await Unknown()

    with pytest.raises(TypeError, match="no performer"):
        perform(MemoryCluster(), protocol(), {})
