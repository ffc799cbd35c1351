"""The properties and methods of `EmbeddedBroker` that show the state of partitions, requests and metrics."""

import os
from abc import abstractmethod
from contextlib import AbstractContextManager

from broker_core.broker.apis import SERVED, check_api, check_criteria
from broker_core.broker.monitoring.inspection import (
    PartitionView,
    TransactionView,
    partition_counts,
    partition_view,
    pending_work,
    transaction_view,
    transaction_views,
    written_partitions,
)
from broker_core.broker.monitoring.metrics import BrokerMetrics
from broker_core.broker.request_log import RequestLog, RequestSeen
from broker_core.installed import part
from broker_core.server.cluster_controls import ClusterControls
from broker_core.types import TopicPartition, check_text, check_whole
from broker_core.wire.api_names import ApiName


class Recording(AbstractContextManager["Recording"]):
    """A recording that goes on until `end()` or the end of its block."""

    @abstractmethod
    def end(self) -> None:
        """End the recording; no effect if it has ended. Raises OSError if a line could not be written."""

    def __exit__(self, *_: object) -> None:
        self.end()


class InspectionControls(ClusterControls):
    """The properties and methods of `EmbeddedBroker` that show the state of partitions, requests and metrics."""

    _requests: RequestLog

    @property
    def topics(self) -> dict[str, int]:
        """The topics and their numbers of partitions, internal topics left out.

        >>> with EmbeddedBroker(topics={"in": 4}) as kafka:
        ...     kafka.topics
        {'in': 4}
        """
        return self._call(partition_counts)

    def partition(self, topic: str, partition: int) -> PartitionView:
        """Return the state of a partition; raises `KafkaError` if it does not exist.

        >>> with EmbeddedBroker(topics={"in": 1}) as kafka:
        ...     print(kafka.partition("in", 0).dump())
        in-0: log start 0, LSO 0, HW 0, log end 0, leader 1 at epoch 0
        """
        check_text("topic", topic)
        place = TopicPartition(topic, check_whole("partition", partition))
        return self._call(lambda cluster: partition_view(cluster, place))

    def transaction(self, transactional_id: str) -> TransactionView:
        """Return the state of a transactional id; KeyError when its coordinator does not know it."""
        check_text("transactional_id", transactional_id)
        view = self._call(lambda cluster: transaction_view(cluster, transactional_id))
        if view is None:
            raise KeyError(f"transactional id {transactional_id!r} is unknown to every coordinator")
        return view

    def transactions(self) -> list[TransactionView]:
        """Return the state of each transactional id, sorted by id."""
        return self._call(transaction_views)

    def written_partitions(self) -> list[TopicPartition]:
        """Return the partitions that records were written to, internal topics left out."""
        return self._call(written_partitions)

    def requests(
        self, *, api: ApiName | None = None, client_id: str | None = None, transactional_id: str | None = None
    ) -> list[RequestSeen]:
        """Return the newest requests that match, oldest first; `str()` of each is a readable line.

        Raises ValueError for an API that is not served, or whose requests name no transactional id if one is given.
        """
        if api is not None:
            check_criteria(SERVED, check_api(api), {} if transactional_id is None else {"transactional_id": "any"})
        seen = self._thread.act(lambda _: list(self._requests))
        return [
            each
            for each in seen
            if (api is None or each.api == api)
            and (client_id is None or each.client_id == client_id)
            and (transactional_id is None or transactional_id in each.transactional_ids)
        ]

    def recording(self, path: str | os.PathLike[str]) -> Recording:
        """Record requests and responses in a file, until `end()` or the end of its block.

        `broker_core.replay` sends the requests again. The file contains the records that clients write
        and read. Requests that can contain secrets are left out, and so are requests of `produce` and the other methods
        of this class.

        Raises OSError if the file cannot be written, and RuntimeError if another recording is in progress. If a write
        fails later, the file ends, the broker goes on, and the end of the block raises OSError.
        """
        recording: Recording = part("recording", "recordings").FileRecording(self._thread, path, self.broker_ids)
        return recording

    def assert_quiescent(self, *, clients_may_wait: bool = False) -> None:
        """Check that nothing is in progress: no open transaction, unstable partition or waiting request.

        Raises AssertionError that names what is. With `clients_may_wait`, the waiting fetches of open consumers are
        ignored.
        """
        found = self._call(lambda cluster: pending_work(cluster, clients_may_wait=clients_may_wait))
        assert not found, "the broker is not at rest: " + "; ".join(found)

    @property
    def metrics(self) -> BrokerMetrics:
        """The metrics of the cluster at this moment."""
        return self._thread.act(lambda server: server.metrics())
