"""Give the driver and the tasks a synchronous Kafka client: brokers, topics, coordinators, feature levels.

A client lives in one process and one thread at a time, connects at first use, and keeps no topic metadata: whoever
needs leaders asks and keeps them. Requests are not repeated here, since only the sender knows whether that is
safe; look-ups (bootstrap, metadata, coordinators) are, until their deadline.
"""

import random
import time
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from broker_core.errors import ErrorCode
from spark_eos.client.batch_limits import BatchLimits
from spark_eos.client.coordinators import Coordinators, CoordinatorType
from spark_eos.client.metadata import (
    WAITED_FOR,
    BrokerAddress,
    RecentTopics,
    TopicMetadata,
    problem_with,
    topic_error,
    topics_of,
)
from spark_eos.client.network import Network, Pending
from spark_eos.errors import EosKafkaError, UnansweredError, UnreachableError, UnsupportedError
from spark_eos.options.client import ClientOptions

__all__ = ["CoordinatorType", "KafkaClient", "remaining_ms"]

_TRANSACTION_FEATURE: Final = "transaction.version"
# Nothing that a transaction has to wait for.
_FEATURES_TIMEOUT_MS: Final = 2_000
# A topic made a moment ago may be unknown to some brokers; one that stays unknown this long is not there.
_MISSING_TOPIC_GRACE_SECONDS: Final = 2.0
_SOFTWARE_VERSION: Final = "1"


class KafkaClient:
    """Send requests to brokers by node id, found by metadata and coordinator look-ups.

    >>> with KafkaClient(options) as client:                                        # doctest: +SKIP
    ...     topic = client.require_topics(["lines"])["lines"]
    ...     client.send(topic.partitions[0].leader, request, timeout_ms=5_000)
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._network: Network | None = None
        self._connected = False
        self._coordinators = Coordinators()
        self.recent = RecentTopics()
        self.batch_limits = BatchLimits()

    def __enter__(self) -> Self:
        """Hand out the client; it connects at first use."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections; the client connects anew if it is used again."""
        network, self._network = self._network, None
        self._connected = False
        if network is not None:
            network.close()

    @property
    def network(self) -> Network:
        """Give the loop underneath, for those who keep several requests in flight."""
        if self._network is None:
            self._network = Network(self.options)
        self._network.check_usable()
        return self._network

    def connect(self, timeout_ms: int | None = None) -> None:
        """Find the cluster; raises `UnreachableError` naming every address tried, within the timeout."""
        if not self._connected:
            self._bootstrap(self.deadline(timeout_ms))

    def deadline(self, timeout_ms: float | None = None) -> float:
        """Turn a timeout into a point on the monotonic clock; None means the options' API timeout."""
        return time.monotonic() + (self.options.api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def back_off(self, attempt: int, deadline: float, *, first_ms: float | None = None) -> bool:
        """Wait before the next attempt (0, 1, ...), keep connections alive; False when the deadline leaves no time."""
        first_ms = self.options.retry_backoff_ms if first_ms is None else first_ms
        backoff_ms = min(first_ms * 2.0 ** min(attempt, 20), self.options.retry_backoff_max_ms)
        seconds = backoff_ms * random.uniform(0.8, 1.2) / 1000
        if time.monotonic() + seconds >= deadline:
            return False
        self.network.pause(seconds)
        return True

    # Requests.

    def send(
        self,
        node_id: int | None,
        request: Any,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Exchange one request with a broker (None: any) at the newest version both sides know within the bounds.

        Raises `UnansweredError` when there is no answer; the response's error codes are the caller's business.
        """
        deadline = self.deadline(timeout_ms)
        pending = self.start(node_id, request, deadline, min_version=min_version, max_version=max_version)
        self.network.wait([pending], deadline)
        return self.outcome(pending, request, node_id)

    def send_all(
        self,
        requests: Sequence[tuple[int | None, Any]],
        *,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> list[Any]:
        """Exchange many requests at once; each place of the result holds a response or an `EosKafkaError`.

        A node that has left the cluster is the trouble of its own requests only: `UnansweredError`, so that whoever
        remembered it as a leader or coordinator forgets it and asks anew.
        """
        deadline = self.deadline(timeout_ms)
        started: list[Pending | UnansweredError] = []
        for node_id, request in requests:
            try:
                started.append(self.start(node_id, request, deadline, min_version=min_version, max_version=max_version))
            except UnansweredError as error:
                started.append(error)
        self.network.wait([each for each in started if not isinstance(each, UnansweredError)], deadline)
        results: list[Any] = []
        for each, (node_id, request) in zip(started, requests, strict=True):
            try:
                results.append(each if isinstance(each, UnansweredError) else self.outcome(each, request, node_id))
            except EosKafkaError as error:
                results.append(error)
        return results

    def start(
        self,
        node_id: int | None,
        request: Any,
        deadline: float,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Pending:
        """Start an exchange without waiting for it; see `network` for polling and `outcome` for its end."""
        self._ensure_connected(deadline)
        node = self._any_node() if node_id is None else self._known_node(node_id, deadline)
        return self.network.start(node, request, deadline, min_version=min_version, max_version=max_version)

    def outcome(self, pending: Pending, request: Any, node_id: int | None) -> Any:
        """Take the response of a started exchange, or raise."""
        target = "a broker" if node_id is None else f"broker {node_id}"
        return self.network.outcome(pending, f"{type(request).__name__} to {target}")

    def api_version(self, request_class: Any, *, min_version: int = 0, max_version: int | None = None) -> int:
        """Say which version of a request would be sent; raises `UnsupportedError` when there is none."""
        self._ensure_connected(self.deadline())
        data = self.network.broker_version_data
        try:
            version: int = data.api_version(
                request_class, min_version=min_version, max_version=float("inf") if max_version is None else max_version
            )
        except Exception as error:
            raise UnsupportedError(f"The broker does not serve {request_class.__name__}: {error}") from error
        return version

    # Brokers and topics.

    def brokers(self) -> list[BrokerAddress]:
        """List the brokers the cluster named last."""
        self._ensure_connected(self.deadline())
        return [BrokerAddress(each.node_id, each.host, each.port) for each in self.network.cluster.brokers()]

    def metadata(
        self,
        topics: Collection[str] | None,
        *,
        allow_auto_topic_creation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, TopicMetadata]:
        """Describe topics (None: all of them), each with its own error code; asks until some broker answers."""
        deadline = self.deadline(timeout_ms)
        attempt = 0
        while True:
            try:
                return self._metadata_once(topics, allow_auto_topic_creation, deadline)
            except UnansweredError as error:
                if not self.back_off(attempt, deadline):
                    raise UnreachableError(
                        "No broker answered a metadata request",
                        checked=f"Brokers asked: {self._address_list()}; the last one: {error.happened}",
                    ) from error
                attempt += 1

    def require_topics(
        self,
        topics: Collection[str],
        *,
        allow_auto_topic_creation: bool = False,
        need_leaders: bool = True,
        timeout_ms: float | None = None,
        max_age_ms: float = 0,
    ) -> dict[str, TopicMetadata]:
        """Describe topics that must exist and have leaders; waits for elections, refuses what is missing.

        With `max_age_ms`, leaders not needed, an answer of that age will do: writers ask the same again and again.
        """
        recent = self.recent.since(topics, time.monotonic() - max_age_ms / 1000) if max_age_ms else None
        if recent is not None and not need_leaders:
            return recent
        deadline = self.deadline(timeout_ms)
        missing_until = min(deadline, time.monotonic() + _MISSING_TOPIC_GRACE_SECONDS)
        attempt = 0
        while True:
            found = self.metadata(
                topics,
                allow_auto_topic_creation=allow_auto_topic_creation,
                timeout_ms=remaining_ms(deadline),
            )
            problems = {name: problem_with(found.get(name), need_leaders) for name in topics}
            bad = {name: code for name, code in problems.items() if code is not ErrorCode.NONE}
            if not bad:
                return found
            until = missing_until if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in bad.values() else deadline
            hopeless = [code for code in bad.values() if code not in WAITED_FOR]
            if hopeless or not self.back_off(attempt, until):
                raise topic_error(bad, self._address_list())
            attempt += 1

    # Coordinators.

    def find_coordinator(self, key_type: CoordinatorType, key: str, *, timeout_ms: float | None = None) -> int:
        """Find the node that coordinates a group or transactional id; remembered until it is forgotten."""
        return self.find_coordinators(key_type, [key], timeout_ms=timeout_ms)[key]

    def find_coordinators(
        self, key_type: CoordinatorType, keys: Collection[str], *, timeout_ms: float | None = None
    ) -> dict[str, int]:
        """Find the coordinators of many keys with as few requests as the broker's version allows."""
        deadline = self.deadline(timeout_ms)
        attempt = 0
        while True:
            trouble = self._coordinators.look_up(self, key_type, keys, deadline)
            if trouble is None:
                return self._coordinators.known(key_type, keys)
            if not self.back_off(attempt, deadline):
                raise UnreachableError(
                    f"No coordinator is known for {key_type.word} {next(iter(keys))!r}",
                    checked=f"Brokers asked: {self._address_list()}; the last answer: {trouble}",
                )
            attempt += 1

    def agree_on_coordinator(self, key_type: CoordinatorType, key: str, *, timeout_ms: float | None = None) -> None:
        """Find the coordinator that every broker names; see `Coordinators.agree`."""
        self._coordinators.agree(self, key_type, key, self.deadline(timeout_ms))

    def forget_coordinator(self, key_type: CoordinatorType, key: str) -> None:
        """Drop a remembered coordinator after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or a lost connection."""
        self.forget_coordinators(key_type, [key])

    def forget_coordinators(self, key_type: CoordinatorType, keys: Iterable[str]) -> None:
        """Drop the remembered coordinators of these keys, so that the next request to each asks who it is."""
        self._coordinators.forget(key_type, keys)

    # Features.

    def transaction_version(self, *, refresh: bool = False, timeout_ms: float | None = None) -> int:
        """Give the cluster's finalized `transaction.version`, 0, 1 or 2 (KIP-890), for a transaction that begins now.

        Connections learn it as they open. A broker is asked where none has spoken of it for `features.MAX_AGE_SECONDS`,
        since a transaction has failed, or to `refresh` it; where it does not answer, what was known before counts.
        """
        deadline = self.deadline(timeout_ms)
        self._ensure_connected(deadline)
        features = self.network.features
        if refresh or not features.is_fresh:
            request = ApiVersionsRequest(client_software_name="spark-eos", client_software_version=_SOFTWARE_VERSION)
            try:
                self.send(None, request, timeout_ms=min(remaining_ms(deadline), _FEATURES_TIMEOUT_MS))
            except UnansweredError:
                features.go_on()
        return features.level(_TRANSACTION_FEATURE)

    def known_transaction_version(self, *, timeout_ms: float | None = None) -> int:
        """Give the level learned last, without a request: for what ends transactions, and must not wait."""
        self._ensure_connected(self.deadline(timeout_ms))
        return self.network.features.level(_TRANSACTION_FEATURE)

    def doubt_features(self) -> None:
        """Have the next transaction ask for the feature levels: one has failed, perhaps since they have changed."""
        self.network.features.doubt()

    # The inside.

    def _ensure_connected(self, deadline: float) -> None:
        if not self._connected or self._network is None:
            self._bootstrap(deadline)

    def _bootstrap(self, deadline: float) -> None:
        network = self.network
        started = time.monotonic()
        causes: dict[str, str] = {}
        servers = network.cluster.bootstrap_brokers()
        random.shuffle(servers)
        attempt = 0
        while True:
            for server in servers:
                try:
                    self._ask_brokers(server.node_id, deadline)
                except UnansweredError as error:
                    causes[f"{server.host}:{server.port}"] = _root_cause(error)
                else:
                    network.close_connection(server.node_id)
                    self._connected = True
                    return
            if time.monotonic() >= deadline or not self.back_off(attempt, deadline):
                raise self._unreachable(causes, time.monotonic() - started)
            attempt += 1

    def _ask_brokers(self, node_id: int | str, deadline: float) -> None:
        request = MetadataRequest(
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        pending = self.network.start(node_id, request, deadline, min_version=1)
        self.network.wait([pending], deadline)
        response = self.network.outcome(pending, "The first metadata request")
        if not response.brokers:
            raise UnansweredError("The broker named no brokers: it is starting or shutting down")
        self.network.cluster.update_metadata(response)

    def _unreachable(self, causes: dict[str, str], waited_seconds: float) -> UnreachableError:
        tried = "; ".join(f"{address} ({cause})" for address, cause in causes.items())
        return UnreachableError(
            f"No Kafka broker could be reached within {waited_seconds:.1f} s",
            checked=f"Tried {tried} with security protocol {self.options.security_protocol}",
        )

    def _known_node(self, node_id: int, deadline: float) -> int:
        """Ask for the brokers again when a node id is new, as after a broker was added."""
        cluster = self.network.cluster
        if cluster.broker_metadata(node_id) is None:
            self.metadata([], timeout_ms=remaining_ms(deadline))
        if cluster.broker_metadata(node_id) is None:
            raise UnansweredError(f"Broker {node_id} is not in the cluster's metadata", checked=self._address_list())
        return node_id

    def _any_node(self) -> int | str:
        """Choose a broker that is not failing; when all are, go back to the bootstrap servers."""
        node_id: int | str | None = self.network.any_node()
        return node_id if node_id is not None else str(random.choice(self.network.cluster.bootstrap_brokers()).node_id)

    def _metadata_once(
        self, topics: Collection[str] | None, allow_auto_topic_creation: bool, deadline: float
    ) -> dict[str, TopicMetadata]:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=allow_auto_topic_creation,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = self.send(None, request, min_version=4, timeout_ms=remaining_ms(deadline))
        self.network.cluster.update_metadata(response)
        found = topics_of(response)
        self.recent.note(found, time.monotonic())
        return found

    def _address_list(self) -> str:
        brokers = self.brokers() if self._connected else []
        return ", ".join(f"{each.host}:{each.port}" for each in brokers) or ", ".join(self.options.bootstrap_servers)


def remaining_ms(deadline: float) -> float:
    """Say how much time is left; never zero, so that what is already there can still be taken."""
    return max(1.0, (deadline - time.monotonic()) * 1000)


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
