"""A short round of the scenarios on three nodes of Apache Kafka; `make crash` runs all of them."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_eos.options.sink import sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import cluster_of, task_writer
from spark_eos.sink.messages import Place, Prepared
from tests.crash.cluster_rounds import KIND, ClusterRounds
from tests.crash.drivers import drivers
from tests.support.apache_cluster import GROUP, ApacheCluster, apache_cluster
from tests.support.spark_eos.client_world import read_values
from tests.support.spark_eos.driving import settle
from tests.support.waiting import wait_until

SEED = 12


@pytest.fixture(scope="module", autouse=True)
def apache_enabled(request: pytest.FixtureRequest) -> None:
    """Skip the module unless tests may start Apache Kafka, before another fixture of the module starts nodes."""
    if not request.config.getoption("--apache"):
        pytest.skip("starts three nodes of Apache Kafka: run with --apache")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    with apache_cluster(tmp_path_factory.mktemp(KIND)) as found:
        yield found


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_rows_are_visible_once_while_a_cluster_of_three_fails(tmp_path: Path) -> None:
    said: list[str] = []
    with drivers(tmp_path) as pool:
        rounds = ClusterRounds(pool, random.Random(SEED), said.append, cuts=1, is_short=True)
        assert rounds.run(KIND, tmp_path / KIND, 2) == [], said


def test_isolated_node_sends_clients_stale_responses(cluster: ApacheCluster) -> None:
    former = cluster.wait_for_coordinator(GROUP, "group")
    cluster.cut(former)
    new = cluster.wait_for_coordinator(GROUP, "group", without=[former])
    assert cluster.coordinator(GROUP, "group", former) == former
    cluster.repair()
    assert cluster.coordinator(GROUP, "group", former) == new


def test_recovery_waits_for_a_leader_without_which_the_marker_is_lost(
    cluster: ApacheCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache Kafka 4.4.0 ends the transaction without its marker there, and no reader gets the row (KAFKA-20734)."""
    caplog.set_level("INFO")
    topic = NewTopic("one-replica", num_partitions=1, replica_assignment=[[2]])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([topic])[topic.topic].result()
    options = sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic.topic})
    process = ProcessState(REAL)
    preflight(process, options)
    writer = task_writer(process, options, Place("q", "run1", 0, 0), may_be_decided=True)
    message = writer.write(iter([pa.record_batch({"value": ["row"]})]))
    assert isinstance(message, Prepared)
    decision = Decision(options.prefix, "q", "run1", 0, 1, 1, 0, (message.transaction,))
    cluster.stop(2)
    settled = []
    restarted = cluster_of(ProcessState(REAL), options)
    recovery = threading.Thread(target=lambda: settled.append(settle(restarted, decision)))
    recovery.start()
    wait_until(lambda: "when one-replica-0 has a leader" in caplog.text, "recovery waits")
    cluster.start(2)
    recovery.join()
    assert settled[0].took_effect
    assert read_values(cluster.bootstrap_servers, topic.topic) == [["row"]]
