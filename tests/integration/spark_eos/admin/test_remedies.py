"""An operator who types what a message prints, and nothing else: the situation ends, and no committed row is lost."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

import broker_core.broker.marker_writer
from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.admin.command import ExitCode, main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.clocks import AheadClock, runtime_by
from tests.support.interop_brokers import at_version
from tests.support.runbook import DECISIONS, TIMEOUT_MS, TOPIC, Query
from tests.support.spark_eos.driving import settle
from tests.support.waiting import wait_until

PLACE = TopicPartition(TOPIC, 1)


@contextmanager
def lost_marker_of(place: TopicPartition) -> Iterator[None]:
    """Have the next markers of a partition get lost, with coordinators that take them for written (KAFKA-20734)."""
    append = broker_core.broker.marker_writer.append_marker

    def lose(broker: object, at: TopicPartition, *arguments: object, **named: object) -> ErrorCode:
        if at == place:
            return ErrorCode.NONE
        return append(broker, at, *arguments, **named)  # type: ignore[arg-type]

    with patch.object(broker_core.broker.marker_writer, "append_marker", lose):
        yield


def typed(text: str, kafka: EmbeddedBroker) -> list[str]:
    """Return the words of the only command in a text, for this cluster."""
    [command] = re.findall(r"`(eos-kafka [^`]*)`|to end it: (eos-kafka .*)", text)
    return shlex.split("".join(command).replace("HOST:PORT", kafka.bootstrap_servers))[1:]


@pytest.mark.parametrize("version", [1, 2])
def test_commit_without_a_leader_ends_with_the_commands_that_the_sink_prints(
    version: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """After half of the timeout the sink commits all the same, and Apache Kafka may lose the marker."""
    topics = {TOPIC: 2, DECISIONS: 1}
    clock = AheadClock()
    with (
        EmbeddedBroker(topics=topics) as kafka,
        at_version(kafka, version),
        KafkaClient(ClientOptions((kafka.bootstrap_servers,)), runtime_by(clock)) as client,
    ):
        query = Query(kafka, client)
        prepared = [query.prepare(0, 42, task, rows=3) for task in (0, 1)]
        decision = query.decide(*prepared)
        clock.ahead_seconds += TIMEOUT_MS / 2_000 + 1
        with lost_marker_of(PLACE):
            with kafka.without_leader(PLACE):
                assert settle(query.cluster, decision).took_effect
            for each in prepared:
                name = each.transaction.transactional_id
                wait_until(lambda: kafka.transaction(name).state == "CompleteCommit", "it is committed")  # noqa: B023
        assert len(kafka.records(TOPIC, isolation="read_committed")) == 3, "the marker is lost"
        assert main(typed(caplog.text, kafka)) == ExitCode.DONE
        abort = typed(capsys.readouterr().err, kafka)
        assert main([*abort, "--yes"]) == ExitCode.DONE
        assert len(kafka.records(TOPIC, isolation="read_committed")) == 6, "no row is lost"


def test_refused_abort_of_a_decided_transaction_leads_to_its_decision(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={TOPIC: 2, DECISIONS: 1}) as kafka:
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            query = Query(kafka, client)
            query.decide(*[query.prepare(0, 42, task, rows=3) for task in (0, 1)])
        line = f"transactions abort --topic {TOPIC} --partition 0 --start-offset 0 --yes --bootstrap-server"
        assert main([*line.split(), kafka.bootstrap_servers]) == ExitCode.NOTHING_DONE
        area, flag, address, show, *which = typed(capsys.readouterr().err, kafka)
        assert (area, show) == ("decisions", "show")
        assert main([area, flag, address, "complete", *which, "--yes", "--watch-seconds", "0.1"]) == ExitCode.DONE
        assert len(kafka.records(TOPIC, isolation="read_committed")) == 6, "no row is lost"
