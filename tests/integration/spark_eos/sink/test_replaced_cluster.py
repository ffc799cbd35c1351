"""A cluster that is set up again at the same address while Spark's processes live, as in development."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from spark_eos.client.broker_client import ReplacedClusterError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place
from spark_eos.sink.protocol.retirement import Retirement
from tests.support.spark_eos.client_world import read_values, unique


class Application:
    """The processes of one driver: one plans, one runs tasks, one commits, and each keeps its client."""

    def __init__(self, address: str) -> None:
        self.options = sink_options({"kafka.bootstrap.servers": address, "topic": "t"})
        self.planner, self.worker, self.driver = (ProcessState(REAL) for _ in range(3))

    def plan(self) -> SinkOptions:
        return preflight(self.planner, self.options)

    def write(self, query: str, micro_batch: int, retirement: Retirement = Retirement.REPLACE) -> None:
        options = self.plan()
        place = Place(query, f"run of {query}", micro_batch, 0)
        rows = pa.record_batch({"value": [f"{query} {micro_batch}"]})
        message = task_writer(self.worker, options, place, may_be_decided=True).write(iter([rows]))
        committer(self.driver, options, query, place.run, retirement=retirement).commit([message], micro_batch)


@pytest.fixture
def first() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        yield kafka


def test_application_goes_on_when_it_is_started_again(first: EmbeddedBroker) -> None:
    """A query stops at its next micro-batch; every process then uses the new cluster, and none fails once more."""
    application = Application(first.bootstrap_servers)
    query, job = unique("query"), unique("job")
    application.write(query, 0)
    port = int(first.bootstrap_servers.rpartition(":")[2])
    first.close()
    with EmbeddedBroker(port=port, topics={"t": 1}) as second:
        with pytest.raises(ReplacedClusterError, match=r"another Kafka cluster.*start the query or the job again"):
            application.plan()
        application.write(job, 0, Retirement.MARK)
        application.write(unique("query"), 0)
        assert len(read_values(second.bootstrap_servers, "t")[0]) == 2
