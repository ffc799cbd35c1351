"""Synchronous requests to brokers, by node id or to any of them.

Requests are not repeated, because only the sender knows whether that is safe. The exception is what only reads (the
bootstrap, metadata): it is repeated until its deadline.
"""

import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeVar

from broker_core.errors import ErrorCode
from broker_core.types import address_text
from spark_eos.backoff import backoff_ms
from spark_eos.client.error_table import code_name
from spark_eos.client.metadata import BrokerAddress, FinalizedFeatures, metadata_request
from spark_eos.client.transport import OtherClusterError, SocketTransport
from spark_eos.errors import EosKafkaError, UnansweredError, UnreachableError, UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL, KafkaTransport, Pending, Runtime

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage, ApiRequest
    from kafka.protocol.metadata import MetadataResponse

    from spark_eos.client.response_decoders import FilteredMetadata

ResponseT = TypeVar("ResponseT")
MetadataT = TypeVar("MetadataT", "MetadataResponse", "FilteredMetadata")

logger = logging.getLogger(__name__)
# For a look at the metadata before a request to a broker that may have moved.
_LOOK_PATIENCE_MS: Final = 2_000
# The most shares of the time for a request that any broker can answer: in a large cluster, few brokers are silent.
_MOST_SHARES: Final = 4


class ReplacedClusterError(UnreachableError):
    """All brokers that a client knew are gone, and another cluster has their addresses."""


class BrokerClient:
    """The connections of one process to the brokers of one cluster."""

    def __init__(self, options: ClientOptions, runtime: Runtime = REAL) -> None:
        self.options = options
        self.runtime = runtime
        self._transport: KafkaTransport | None = None
        self._connected = False
        # The brokers that left a request unanswered since the last metadata response: they may have moved.
        self._doubted: set[int] = set()
        # Brokers that have said nothing since then: requests that any broker can answer go to the others first.
        self._silent: set[int | str | None] = set()
        # As old as the transport: a cluster that is connected to later may have been set up again.
        self.features = FinalizedFeatures(runtime.clock)
        self._monotonic = runtime.clock.monotonic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client connects again if it is used again."""
        transport, self._transport = self._transport, None
        self._connected = False
        if transport is not None:
            transport.close()

    @property
    def transport(self) -> KafkaTransport:
        """Return the connections and their loop, for code that keeps several requests in flight."""
        if self._transport is None:
            self.features = FinalizedFeatures(self.runtime.clock)
            open_transport = self.runtime.open_transport or SocketTransport
            self._transport = open_transport(self.options, self.runtime, self.features.note)
        self._transport.check_usable()
        return self._transport

    def connect(self, timeout_ms: int | None = None) -> None:
        """Connect to the cluster; raise `UnreachableError` with every address tried, within the timeout."""
        if not self._connected:
            self._bootstrap(self.deadline(timeout_ms))

    def deadline(self, timeout_ms: float | None = None) -> float:
        """Convert a timeout to a time of the monotonic clock; None means the options' API timeout."""
        return self._monotonic() + (self.options.api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def remaining_ms(self, deadline: float) -> float:
        """Return how much time is left; never zero, so that a response that is already there can be read."""
        return max(1.0, (deadline - self._monotonic()) * 1000)

    def share(self, deadline: float, brokers: int) -> float:
        """Return until when to wait for one of the brokers that can answer, so that time is left for the others."""
        return self._monotonic() + self.remaining_ms(deadline) / 1000 / max(1, min(brokers, _MOST_SHARES))

    def back_off(self, attempt: int, deadline: float, *, first_ms: float | None = None) -> bool:
        """Wait before the next attempt (0, 1, ...), keep connections alive; return False if there is no time left."""
        first_ms = self.options.retry_backoff_ms if first_ms is None else first_ms
        wait_ms = backoff_ms(attempt, first_ms, self.options.retry_backoff_max_ms)
        seconds = wait_ms * self.runtime.random.uniform(0.8, 1.2) / 1000
        if self._monotonic() + seconds >= deadline:
            return False
        self.transport.pause(seconds)
        return True

    def attempts(self, deadline: float, *, first_ms: float | None = None) -> Iterator[int]:
        """Yield 0, 1, ... with a pause before each but the first, until no time is left for another attempt."""
        for attempt in itertools.count():
            yield attempt
            if not self.back_off(attempt, deadline, first_ms=first_ms):
                return

    # Requests.

    def send(
        self, node_id: int | None, request: "ApiRequest[ResponseT]", *, timeout_ms: float | None = None
    ) -> ResponseT:
        """Send one request to a broker (None: any) and return the response, at the newest version within its bounds.

        Raises `UnansweredError` if there is no response; the caller handles the response's error codes.
        """
        deadline = self.deadline(timeout_ms)
        return self._exchange(self._target(node_id, deadline), request, node_id, deadline)

    def _exchange(
        self,
        target: int | str,
        request: "ApiRequest[ResponseT]",
        node_id: int | None,
        deadline: float,
        check: "Callable[[ResponseT], None] | None" = None,
    ) -> ResponseT:
        """Send a request; a broker that does not respond, or whose response `check` does not accept, is silent."""
        if node_id is None:
            deadline = self.share(deadline, len(self.brokers()))
        pending = self.transport.start(target, request, deadline)
        self.transport.wait([pending], deadline)
        try:
            response = self.outcome(pending, request, node_id)
            if check is not None:
                check(response)
        except UnansweredError:
            self._silent.add(target)
            raise
        return response

    def send_all(
        self, requests: "Sequence[tuple[int | None, ApiRequest[ResponseT]]]", *, timeout_ms: float | None = None
    ) -> list[ResponseT | EosKafkaError]:
        """Send many requests at once; each item of the result is a response or an `EosKafkaError`.

        A node that has left the cluster fails only its own requests, with `UnansweredError`, so that the caller forgets
        it as a leader or coordinator and looks that up again.
        """
        deadline = self.deadline(timeout_ms)
        started: list[Pending | UnansweredError] = []
        for node_id, request in requests:
            try:
                started.append(self.start(node_id, request, deadline))
            except UnansweredError as error:
                started.append(error)
        self.transport.wait([each for each in started if not isinstance(each, UnansweredError)], deadline)
        results: list[ResponseT | EosKafkaError] = []
        for each, (node_id, request) in zip(started, requests, strict=True):
            try:
                results.append(each if isinstance(each, UnansweredError) else self.outcome(each, request, node_id))
            except EosKafkaError as error:
                results.append(error)
        return results

    def start(self, node_id: int | None, request: "ApiMessage", deadline: float) -> Pending:
        return self.transport.start(self._target(node_id, deadline), request, deadline)

    def _target(self, node_id: int | None, deadline: float) -> int | str:
        self._ensure_connected(deadline)
        return self._any_node() if node_id is None else self._known_node(node_id, deadline)

    def outcome(self, pending: Pending, request: "ApiRequest[ResponseT]", node_id: int | None) -> ResponseT:
        target = "a broker" if node_id is None else f"broker {node_id}"
        try:
            response: ResponseT = self.transport.outcome(pending, f"{type(request).__name__} to {target}")
        except UnansweredError as error:
            if node_id is not None:
                self._doubted.add(node_id)
            if isinstance(error, OtherClusterError):
                # Its features were noted when the connection began.
                self.features.doubt()
            raise
        self._silent.discard(node_id)
        return response

    def api_version(self, request_class: "type[ApiMessage]", *, min_version: int = 0) -> int:
        """Return the version of a request that would be sent; raise `UnsupportedError` if there is none."""
        self._ensure_connected(self.deadline())
        try:
            return int(self.transport.broker_version_data.api_version(request_class, min_version=min_version))
        except Exception as error:
            raise UnsupportedError(f"The broker does not serve {request_class.__name__}: {error}") from error

    def ask_metadata(
        self,
        make: "Callable[[], ApiRequest[MetadataT]]",
        *,
        timeout_ms: float | None = None,
        is_whole: "Callable[[MetadataT], bool]" = lambda _: True,
    ) -> MetadataT:
        """Send a request for metadata to one broker after the other until one says something.

        `make` builds the request for each attempt. After a response that is not whole, the next request goes to another
        broker. Raises `UnreachableError` if none has responded in time.
        """
        deadline = self.deadline(timeout_ms)
        last: UnansweredError | None = None
        for _ in self.attempts(deadline):
            try:
                target = self._target(None, deadline)
                answer = self._exchange(target, make(), None, deadline, _check_metadata)
                if not is_whole(answer):
                    self._silent.add(target)
                return answer
            except UnansweredError as error:
                last = error
                if isinstance(error, OtherClusterError) and error.is_everywhere:
                    self._leave_replaced_cluster(error)
        checked = f"Tried {self._address_list()}; last error: {last and last.happened}"
        raise UnreachableError("No broker answered a metadata request", checked=checked) from last

    def _leave_replaced_cluster(self, error: OtherClusterError) -> NoReturn:
        """Raise; what is used next begins with the bootstrap servers, whichever cluster that is."""
        addresses, cluster_id = self._address_list(), self.cluster_id
        self.close()
        raise ReplacedClusterError(
            "The addresses of all brokers lead to another Kafka cluster now",
            checked=f"The cluster ids in Metadata of {addresses}; before it was {cluster_id}",
            remedy="If the cluster was set up again, start the query or the job again: it then uses the new one. "
            "Otherwise find out what has got the addresses of the brokers",
        ) from error

    @property
    def cluster_id(self) -> str | None:
        """Return the id of the cluster that this client is connected to, or None if it is not known."""
        return None if self._transport is None else self._transport.cluster.cluster_id

    def use_cluster(self, cluster_id: str | None) -> None:
        """Begin again with the bootstrap servers if this client is connected to another cluster than this one."""
        if cluster_id is not None and self.cluster_id not in (None, cluster_id):
            self.close()

    def ask_each_broker(
        self, make: "Callable[[], ApiRequest[ResponseT]]", *, timeout_ms: float | None = None
    ) -> "dict[BrokerAddress, ResponseT | EosKafkaError]":
        """Send a request to every known broker at once; return its response, or why there is none."""
        brokers = self.brokers()
        answers = self.send_all([(each.node_id, make()) for each in brokers], timeout_ms=timeout_ms)
        return dict(zip(brokers, answers, strict=True))

    def brokers(self) -> list[BrokerAddress]:
        self._ensure_connected(self.deadline())
        return [BrokerAddress(each.node_id, each.host, each.port) for each in self.transport.cluster.brokers()]

    def _ensure_connected(self, deadline: float) -> None:
        if not self._connected or self._transport is None:
            self._bootstrap(deadline)

    def _bootstrap(self, deadline: float) -> None:
        transport = self.transport
        started = self._monotonic()
        causes: dict[str, list[str]] = defaultdict(list)
        servers = transport.cluster.bootstrap_brokers()
        self.runtime.random.shuffle(servers)
        for attempt in self.attempts(deadline):
            if attempt == 1:
                logger.warning(
                    "No Kafka broker can be reached yet. Tried %s. Trying again for up to %.0f s",
                    _with_causes(causes),
                    self.remaining_ms(deadline) / 1000,
                )
            for number, server in enumerate(servers):
                try:
                    self._ask_brokers(server.node_id, self.share(deadline, len(servers) - number))
                except UnansweredError as error:
                    known, cause = causes[address_text(server.host, server.port)], _root_cause(error)
                    # The last attempt ends with the time: that it had no answer says less than what came before.
                    if cause not in known:
                        known.append(cause)
                else:
                    transport.close_connection(server.node_id)
                    self._connected = True
                    return
        raise UnreachableError(
            f"No Kafka broker could be reached within {self._monotonic() - started:.1f} s",
            checked=f"Tried {_with_causes(causes)} with security protocol {self.options.security_protocol}",
        )

    def _ask_brokers(self, node_id: int | str, deadline: float) -> None:
        pending = self.transport.start(node_id, metadata_request([], min_version=1), deadline)
        self.transport.wait([pending], deadline)
        response = self.transport.outcome(pending, "Initial metadata request")
        _check_metadata(response)
        self.transport.cluster.update_metadata(response)

    def _known_node(self, node_id: int, deadline: float) -> int:
        cluster = self.transport.cluster
        if node_id in self._doubted:
            self._look_for_doubted(deadline)
        if cluster.broker_metadata(node_id) is None:
            response = self.ask_metadata(lambda: metadata_request([]), timeout_ms=self.remaining_ms(deadline))
            cluster.update_metadata(response)
        if cluster.broker_metadata(node_id) is None:
            raise UnansweredError(f"Broker {node_id} is not in the cluster's metadata", checked=self._address_list())
        return node_id

    def _look_for_doubted(self, deadline: float) -> None:
        """Ask once, and another broker if possible, where the doubted brokers are; without a response, go on."""
        doubted, self._doubted = self._doubted, set()
        node_id = self._any_node()
        if node_id in doubted:
            others = [each.node_id for each in self.brokers() if each.node_id not in doubted]
            node_id = self.runtime.random.choice(others) if others else self._bootstrap_node()
        # Requests to other brokers may wait for this one.
        until = self.deadline(min(_LOOK_PATIENCE_MS, self.remaining_ms(deadline) / 4))
        try:
            self._ask_brokers(node_id, until)
        except EosKafkaError as error:
            logger.debug("the addresses of brokers %s are not known again: %s", sorted(doubted), error)

    def note_address(self, broker: BrokerAddress) -> None:
        """Use an address that a response names, if it is new."""
        if broker.host and self.transport.note_address(*broker):
            self._doubted.discard(broker.node_id)

    def _any_node(self) -> int | str:
        """Choose a broker that is not failing; if all are, try them and the bootstrap servers, which know who moved."""
        node_id: int | str | None = self.transport.any_node()
        known = self.transport.cluster.brokers()
        if node_id in self._silent:
            others = [each.node_id for each in known if each.node_id not in self._silent]
            if others:
                node_id = self.runtime.random.choice(others)
            else:
                # Each has another turn.
                self._silent.clear()
        if node_id is not None:
            return node_id
        if known and self.runtime.random.choice([True, False]):
            found: int | str = self.runtime.random.choice(known).node_id
            return found
        return self._bootstrap_node()

    def _bootstrap_node(self) -> str:
        return str(self.runtime.random.choice(self.transport.cluster.bootstrap_brokers()).node_id)

    def _address_list(self) -> str:
        brokers = self.brokers() if self._connected else []
        known = [address_text(each.host, each.port) for each in brokers]
        return ", ".join(known or self.options.bootstrap_servers)


def _check_metadata(answer: "MetadataResponse | FilteredMetadata") -> None:
    """Raise `UnansweredError` if a response to Metadata says nothing about topics and brokers."""
    if answer.error_code != ErrorCode.NONE:
        raise UnansweredError(
            f"The broker's metadata response is {code_name(answer.error_code)}", error_code=answer.error_code
        )
    if not answer.brokers:
        raise UnansweredError(
            "The broker's metadata response lists no brokers; the broker is starting or shutting down"
        )


def _with_causes(causes: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{address} ({', then '.join(each)})" for address, each in causes.items())


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
