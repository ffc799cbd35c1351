"""Changes in Kafka under a query: coordinators and leaders move, epochs and ids run out."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from broker_core import EmbeddedBroker
from broker_core.coordinator.transactions.records import TransactionImage, encode_key, encode_value
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition, TransactionState, coordinator_partition
from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.options.client import ClientOptions
from spark_eos.sink.naming import driver_id
from tests.crash.hazards_query import TASKS, Hazard, end
from tests.support.broker_processes import Broker, make_broker
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.spark_eos.brokers import SETTINGS, running_broker
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
MakeHazard = Callable[..., Hazard]
BROKER_IDS = 3
EXPIRATION_MS = 3_000
LAST_USED_EPOCH = 32_765
# The client id under which a broker lets an operator write to an internal topic.
REPAIRER = "__admin_client"


@pytest.fixture(scope="module")
def own(hazard_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a broker of this module only, which may be killed and changed."""
    with closing(make_broker(hazard_kind, tmp_path_factory.mktemp("own") / "broker")) as broker:
        broker.start()
        yield broker


@pytest.fixture(scope="module")
def trio() -> Iterator[EmbeddedBroker]:
    """Return three broker ids over one set of logs; with one node of Apache Kafka nothing can move."""
    with EmbeddedBroker(brokers=BROKER_IDS, config=SETTINGS) as broker:
        yield broker


def move(trio: EmbeddedBroker, topics: Callable[[str], bool]) -> int:
    """Make another broker the leader of every partition of some topics."""

    def act(cluster: object) -> int:
        metadata = cluster.metadata  # type: ignore[attr-defined]
        ids = sorted(cluster.brokers)  # type: ignore[attr-defined]
        places = [
            (TopicPartition(name, number), leadership.leader)
            for name, topic in metadata.topics.items()
            if topics(name)
            for number, leadership in enumerate(topic.partitions)
        ]
        for place, leader in places:
            cluster.controller.move_leader(place, ids[(ids.index(leader) + 1) % len(ids)])  # type: ignore[attr-defined]
        return len(places)

    return trio._call(act)


@pytest.mark.parametrize("internal", [True, False], ids=["coordinators", "leaders"])
def test_leaders_and_coordinators_moved_at_every_step(
    hazard_at: MakeHazard, trio: EmbeddedBroker, internal: bool
) -> None:
    """Coordinators or leaders move during the write, between prepare and decision, and between two EndTxns."""
    hazard = hazard_at(trio.bootstrap_servers.split(",")[0])
    case = hazard.case(micro_batches=3, kafka_max_request_size="5000")
    holds = [
        hazard.hold(point, number)
        for number, point in enumerate(("task.before_flush", "driver.before_decide", "driver.mid_complete"))
    ]
    hazard.arm(*[hold.rule for hold in holds])
    query = hazard.start(case)
    for hold in holds:
        hold.wait(query)
        assert move(trio, lambda name: name.startswith("__") is internal) > 0
        hold.release()
    end(query)
    hazard.judge(case)


def exhaust_epochs(address: str, transactional_id: str, epoch: int) -> None:
    """Set the epoch of an id by the record that so many transactions would have left in its coordinator's log."""
    with KafkaClient(ClientOptions((address,))) as client:
        identity = init_producer_id(client, transactional_id, transaction_timeout_ms=60_000)
    now_ms = time.time_ns() // 1_000_000
    image = TransactionImage(identity.producer.producer_id, epoch, 60_000, TransactionState.EMPTY, frozenset(), now_ms)
    batch = build_batch([NewRecord(encode_key(transactional_id), encode_value(image, 2), (), now_ms)])
    count = int(SETTINGS["transaction.state.log.num.partitions"])
    with RawClient(address, client_id=REPAIRER) as repairer:
        error, *_ = RawSession(repairer, None).produce(
            TRANSACTION_STATE_TOPIC, batch, version=9, partition=coordinator_partition(transactional_id, count)
        )
    assert error == 0


@pytest.mark.parametrize("epoch", [LAST_USED_EPOCH - 1, LAST_USED_EPOCH])
def test_epoch_exhaustion_of_a_producer(hazard_at: MakeHazard, own: Broker, epoch: int) -> None:
    """For a task and for a driver: both continue with a new producer id, and a crash at the last epoch is repaired."""
    hazard = hazard_at(own.address)
    worker, driver = hazard.case(micro_batches=3), hazard.case(micro_batches=3)
    name = str(uuid.uuid4())
    driver.checkpoint.mkdir()
    (driver.checkpoint / "metadata").write_text(json.dumps({"id": name}))
    hold = hazard.hold("task.begin", 1)
    hazard.arm(
        hold.rule, worker.rule("driver.after_decide", "raise", 1), driver.rule("driver.mid_complete", "raise", 1)
    )
    query = hazard.start(worker, tasks=1)
    hold.wait()
    [task] = hazard.task_ids(worker)
    exhaust_epochs(own.address, task, epoch)
    exhaust_epochs(own.address, driver_id(driver.prefix, name), epoch - 1)
    own.kill()
    own.start()
    hold.release()
    with pytest.raises(Exception, match="driver.after_decide"):
        end(query)
    hazard.run(worker, tasks=1)
    hazard.run_to_failure(driver, "driver.mid_complete")
    hazard.run(driver)
    hazard.judge(worker, driver)


def test_transactional_ids_expire(hazard_at: MakeHazard, hazard_kind: str) -> None:
    """Ids expire between two micro-batches of a running query, and before a decided and completed one runs again."""
    settings = SETTINGS | {
        "transactional.id.expiration.ms": str(EXPIRATION_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with running_broker(hazard_kind, settings) as address:
        hazard = hazard_at(address)
        case = hazard.case(micro_batches=3)

        def forgotten() -> bool:
            with KafkaClient(ClientOptions((address,))) as client:
                return not any(each.transactional_id.startswith(case.prefix) for each in list_transactions(client))

        holds = [hazard.hold("task.begin", 1) for _ in range(TASKS)]
        hazard.arm(*[hold.rule for hold in holds], case.rule("driver.after_complete", "raise", 2))
        query = hazard.start(case)
        for hold in holds:
            hold.wait()
        wait_until(forgotten, "the ids expire")
        for hold in holds:
            hold.release()
        with pytest.raises(Exception, match="driver.after_complete"):
            end(query)
        wait_until(forgotten, "the ids expire again")
        hazard.run(case)
        hazard.judge(case)
