"""kafka-python's connections, driven synchronously, with a deadline for each wait.

Only this module and `event_loop` use `kafka.net`. There is no thread: the loop runs while something waits or polls. A
forked child inherits the parent's sockets and its epoll set, which the kernel shares: a child that closed them in the
usual way would remove the parent's registrations from the shared set. So after a fork every inherited transport is
abandoned in the child, silently and without changes to the shared set.
"""

import contextlib
import math
import re
import selectors
import socket
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from broker_core.types import LONG_MAX
from spark_eos.client.event_loop import EventLoop, write_directly
from spark_eos.client.metadata import metadata_request
from spark_eos.client.oauth_tokens import TokenProvider, keep_out_of_logs, token_provider
from spark_eos.client.response_reader import MalformedResponse, NoteVersions, install_response_reader
from spark_eos.client.sasl_logins import sasl_login
from spark_eos.client.tls import TlsContext, tls_context
from spark_eos.errors import AuthenticationError, ClientStateError, EosKafkaError, UnansweredError, UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import Pending, Runtime

if TYPE_CHECKING:
    from kafka.net.connection import KafkaConnection
    from kafka.protocol.api_message import ApiMessage

_MANY_IN_FLIGHT: Final = 1_000
_THROTTLE_CHECK_SECONDS: Final = 0.02
_TOKEN_CHECK_SECONDS: Final = 0.005
# Ends the wait for a token before the request ends, whose error does not name the step.
_TOKEN_MARGIN_SECONDS: Final = 0.2
_REJECTED: Final = "The broker rejected the credentials"
_IDLE_SECONDS: Final = 1.0
# A metadata response of this age names addresses that are good for a first connection.
_NEWS_SECONDS: Final = 5.0
# TLS alerts that a broker sends about the client's certificate, as OpenSSL names them.
_REFUSED_CERTIFICATE: Final = re.compile(r"ALERT_(BAD_CERTIFICATE|CERTIFICATE_|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA)")


class OtherClusterError(UnansweredError):
    """A broker of another cluster has answered: the address was one of ours, as the address of a pod that is gone.

    `is_everywhere` states that all known addresses lead to other clusters.
    """

    is_everywhere = False


class _OtherCluster(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """The same, on its way through kafka-python."""


class SocketTransport:
    """An event loop, and a connection to each broker of one cluster, which the first answer names."""

    def __init__(self, options: ClientOptions, runtime: Runtime, note_versions: NoteVersions) -> None:
        self.options = options
        self.closed = False
        self._monotonic = runtime.clock.monotonic
        self._getpid = runtime.process.getpid
        self._process_id = self._getpid()
        keep_out_of_logs()
        self._selector = EventLoop(client_id=options.client_id, slow_task_threshold_secs=0)
        try:
            self._tokens = token_provider(options, runtime)
            config = manager_config(options, tls_context(options), self._tokens)
            self._manager = KafkaConnectionManager(self._selector, **config)
        except BaseException:
            self._selector.close()
            raise
        self._tcp_transports: weakref.WeakSet[KafkaTCPTransport] = weakref.WeakSet()
        # Where the connections lead, by node id.
        self._addresses: dict[int | str, tuple[str, int]] = {}
        # The connections that lead to a broker of this cluster.
        self._proven: dict[int | str, KafkaConnection] = {}
        # The brokers whose addresses led to another cluster when they were tried last.
        self._strangers: set[int | str] = set()
        self._named_at = -math.inf
        self._cluster_id: str | None = None
        self.cluster.add_listener(self._leave_old_addresses)
        install_response_reader(self._manager, note_versions, self._take)
        runtime.process.abandon_in_children(self)

    @property
    def cluster(self) -> Any:
        return self._manager.cluster

    @property
    def broker_version_data(self) -> Any:
        return self._manager.broker_version_data

    def start(self, node_id: int | str, request: "ApiMessage", deadline: float) -> Pending:
        self.check_usable()
        connection = self._manager._conns.get(node_id)
        if connection is not None and connection.connected:
            # Brokers close idle connections, and a request sent on one gets no response.
            if self._monotonic() - connection.transport.last_activity > _IDLE_SECONDS:
                self.poll(0)
        is_ready = connection is not None and connection.connected and not connection.paused
        if connection is not None and is_ready and self._proven.get(node_id) is connection:
            try:
                return cast("Pending", self._send(connection, request, deadline))
            except Exception as error:
                return cast("Pending", Future().failure(error))
        return cast("Pending", self._manager.call_soon(self._exchange, node_id, request, deadline))

    def poll(self, timeout_ms: float) -> None:
        self.check_usable()
        self._selector.poll(timeout_ms=timeout_ms)
        self._selector.drain()

    def wait(self, pending: Sequence[Pending], deadline: float) -> None:
        self.check_usable()
        for future in pending:
            remaining = max(0.0, deadline - self._monotonic())
            if not future.is_done:
                self._selector.poll(timeout_ms=remaining * 1000, future=future)

    def wait_any(self, pending: Sequence[Pending], deadline: float) -> None:
        while pending and not any(future.is_done for future in pending):
            remaining = deadline - self._monotonic()
            if remaining <= 0:
                return
            self.poll(remaining * 1000)

    def pause(self, seconds: float) -> None:
        until = self._monotonic() + seconds
        while (remaining := until - self._monotonic()) > 0:
            self.poll(remaining * 1000)

    def outcome(self, future: Pending, described: str) -> Any:
        if not future.is_done:
            raise UnansweredError(f"{described} timed out{self._quotas()}")
        if future.exception is None:
            if self._is_of_another(future.value):
                raise self._other_cluster(f"{described} was answered by a broker of another cluster")
            return future.value
        if isinstance(future.exception, _OtherCluster):
            raise self._other_cluster(f"{described} was not sent: {future.exception.args[0]}") from future.exception
        raise translate(future.exception, described) from future.exception

    def _other_cluster(self, happened: str) -> OtherClusterError:
        error = OtherClusterError(happened)
        error.is_everywhere = {each.node_id for each in self.cluster.brokers()} <= self._strangers
        return error

    def _quotas(self) -> str:
        """Say which brokers have asked the client to send nothing for a while (KIP-219)."""
        now = self._monotonic()
        waits = {each.node_id: each._throttle_time - now for each in self._manager._conns.values()}
        told = (
            f"; broker {node_id} throttles this client, which is above a quota, for another {seconds:.0f} s"
            for node_id, seconds in waits.items()
            if seconds > 0
        )
        return "".join(told)

    def any_node(self) -> int | str | None:
        node_id = cast("int | str | None", self._manager.least_loaded_node())
        if node_id in self._manager._backoff:
            # It failed, and may be tried again. It may have moved, and another broker can tell where.
            others = [each.node_id for each in self.cluster.brokers() if each.node_id not in self._manager._backoff]
            return others[0] if others else None
        return node_id

    def note_address(self, node_id: int, host: str, port: int) -> bool:
        known = self.cluster._brokers.get(node_id)
        if known is not None and (known.host, known.port) == (host, port):
            return False
        self.cluster._brokers[node_id] = MetadataResponse.MetadataResponseBroker(
            node_id=node_id, host=host, port=port, rack=None
        )
        self._leave_old_addresses(self.cluster)
        return True

    def _leave_old_addresses(self, cluster: Any) -> None:
        """Close the connections to brokers that are at another address now; the old one may be another broker's."""
        self._named_at = self._monotonic()
        # An answer without the id is of this cluster, too.
        self._cluster_id = cluster.cluster_id = cluster.cluster_id or self._cluster_id
        for node_id, address in list(self._addresses.items()):
            node = cluster.broker_metadata(node_id)
            if node is not None and (node.host, node.port) != address:
                del self._addresses[node_id]
                self._manager.reset_backoff(node_id)
                self._manager._auth_failures.pop(node_id, None)
                self.close_connection(node_id)

    def close_connection(self, node_id: int | str) -> None:
        self._manager.close(node_id=node_id)

    def check_usable(self) -> None:
        if self._process_id != self._getpid():
            raise ClientStateError(
                f"A Kafka client opened in process {self._process_id} is used in process {self._getpid()}",
                remedy="Open a client in each process; connections cannot be shared across a fork",
            )
        if self.closed:
            raise ClientStateError("The Kafka client is closed", remedy="Open a new one")

    def close(self) -> None:
        if self.closed or self._process_id != self._getpid():
            return
        self.closed = True
        self._manager.close()
        self._selector.close()
        _close(self._sockets())

    def _sockets(self) -> list[socket.socket]:
        """List the open sockets; one that was given up while it connected is in no list of the manager."""
        connected = [transport._sock for transport in self._tcp_transports if transport._sock is not None]
        return [*connected, *self._selector.awaited]

    def _take(self, transport: Any) -> None:
        if isinstance(transport, KafkaTCPTransport):
            write_directly(transport)
            self._tcp_transports.add(transport)

    def abandon(self) -> None:
        if self.closed:
            return
        self.closed = True
        inherited, self._selector._selector = self._selector._selector, selectors.SelectSelector()
        inherited.close()
        _close([*self._sockets(), self._selector._wakeup_r, self._selector._wakeup_w])

    async def _exchange(self, node_id: int | str, request: "ApiMessage", deadline: float) -> Any:
        connection = await self._connection(node_id, deadline)
        while connection.paused:
            # The broker asked the client to send nothing for a while (KIP-219).
            if self._monotonic() >= deadline:
                raise kafka_errors.KafkaTimeoutError(f"no time left{self._quotas()}")
            await self._selector.sleep(_THROTTLE_CHECK_SECONDS)
        return await self._send(connection, request, deadline)

    def _send(self, connection: "KafkaConnection", request: "ApiMessage", deadline: float) -> Any:
        request.API_VERSION = connection.broker_version_data.api_version(request)
        remaining_ms = (deadline - self._monotonic()) * 1000
        timeout_ms = max(1.0, min(float(self.options.request_timeout_ms), remaining_ms))
        sent = connection.send_request(request, request_timeout_ms=timeout_ms)
        if isinstance(request, MetadataRequest):
            sent.add_callback(partial(self._examine, connection.node_id))
        return sent

    async def _connection(self, node_id: int | str, deadline: float) -> "KafkaConnection":
        delay = self._manager.connection_delay(node_id)
        while delay > 0:
            if self._monotonic() + delay > deadline:
                raise kafka_errors.KafkaTimeoutError(f"broker {node_id} refused connections until the deadline")
            await self._selector.sleep(delay)
            delay = self._manager.connection_delay(node_id)
        await self._wait_for_token(deadline)
        remaining_ms = (deadline - self._monotonic()) * 1000
        timeout_ms = min(self._manager.socket_connection_setup_timeout_ms(node_id), max(1.0, remaining_ms))
        node = self.cluster.broker_metadata(node_id)
        if node is not None:
            self._addresses[node_id] = (node.host, node.port)
        connection = self._manager.get_connection(node_id, timeout_ms=timeout_ms, refresh_metadata_on_err=False)
        try:
            await connection
            await self._prove(node_id, connection, deadline)
            return connection
        except kafka_errors.SaslAuthenticationFailedError as error:
            if self._tokens is None:
                raise
            raise AuthenticationError(f"{_REJECTED}: {error}", checked=self._tokens.rejected()) from None
        except (kafka_errors.KafkaError, EosKafkaError):
            raise
        except Exception as error:
            # kafka-python fails on invalid addresses, and on unexpected responses during authentication.
            raise MalformedResponse(f"cannot connect, {type(error).__name__}: {error}") from None

    async def _prove(self, node_id: int | str, connection: "KafkaConnection", deadline: float) -> None:
        """Ask a broker first for its cluster, unless its address is new and was just named (KIP-1242)."""
        is_news = node_id not in self._proven and self._monotonic() - self._named_at < _NEWS_SECONDS
        is_first = self.cluster.cluster_id is None
        if not (is_news or is_first or self._proven.get(node_id) is connection):
            await self._send(connection, metadata_request([]), deadline)
            if node_id in self._strangers:
                raise _OtherCluster(f"a broker of another cluster has the address of broker {node_id}")
        self._proven[node_id] = connection

    def _examine(self, node_id: int | str, response: object) -> None:
        """Leave a broker of another cluster; for a while, others are asked first."""
        if self._is_of_another(response):
            self._strangers.add(node_id)
            self.close_connection(node_id)
            self._manager.update_backoff(node_id)
        else:
            self._strangers.discard(node_id)

    def _is_of_another(self, response: object) -> bool:
        """Return whether a response, of Metadata in any form, names another cluster than this one."""
        known, found = self.cluster.cluster_id, getattr(response, "cluster_id", None)
        return known is not None and found is not None and known != found

    async def _wait_for_token(self, deadline: float) -> None:
        """Let a token be fetched before the connection, whose timeout is short; other connections go on."""
        attempt = None if self._tokens is None else self._tokens.attempt()
        if attempt is None:
            return
        deadline -= _TOKEN_MARGIN_SECONDS
        if attempt.patience_s is not None:
            deadline = min(deadline, self._monotonic() + attempt.patience_s)
        while not attempt.done.is_set() and self._monotonic() < deadline:
            await self._selector.sleep(_TOKEN_CHECK_SECONDS)
        attempt.token()


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.close()


def translate(error: BaseException, described: str) -> EosKafkaError | BaseException:
    """Convert one of kafka-python's exceptions to ours; a bug stays what it is."""
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return UnsupportedError(
            f"{described} requires a newer broker: {error}", remedy="Use brokers of Apache Kafka 3.0 or later"
        )
    if isinstance(
        error,
        kafka_errors.SaslAuthenticationFailedError
        | kafka_errors.UnsupportedSaslMechanismError
        | kafka_errors.IllegalSaslStateError,
    ):
        return AuthenticationError(f"{_REJECTED}: {error}")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return AuthenticationError(
            f"The broker's certificate is not trusted: {error}",
            remedy="Set kafka.ssl.truststore.location to a PEM file with the certificate authority",
        )
    if _REFUSED_CERTIFICATE.search(str(error)):
        return AuthenticationError(
            f"The broker rejected the client's certificate, or requires one: {error}",
            remedy="Set kafka.ssl.keystore.location to a PEM file with a certificate that the broker trusts, and "
            "its key",
        )
    if isinstance(error, kafka_errors.KafkaProtocolError):
        return UnansweredError(
            f"{described}: malformed response: {error}",
            remedy="Check that kafka.bootstrap.servers names Kafka brokers and that kafka.security.protocol "
            "matches their listener",
        )
    if isinstance(error, kafka_errors.KafkaError):
        return UnansweredError(f"{described} received no response: {error or type(error).__name__}")
    return error


def manager_config(options: ClientOptions, context: TlsContext | None, tokens: TokenProvider | None) -> dict[str, Any]:
    socket_options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if options.send_buffer_bytes > 0:
        socket_options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes))
    if options.receive_buffer_bytes > 0:
        socket_options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes))
    return {
        "bootstrap_servers": list(options.bootstrap_servers),
        "client_id": options.client_id,
        "client_software_name": "spark-eos",
        "receive_message_max_bytes": options.receive_message_max_bytes,
        # kafka-python would connect again and again without a pause.
        "reconnect_backoff_ms": max(1, options.reconnect_backoff_ms),
        "reconnect_backoff_max_ms": max(1, options.reconnect_backoff_max_ms),
        "request_timeout_ms": options.request_timeout_ms,
        "socket_connection_setup_timeout_ms": options.connection_setup_timeout_ms,
        "socket_connection_setup_timeout_max_ms": options.connection_setup_timeout_max_ms,
        "socket_options": socket_options,
        "max_in_flight_requests_per_connection": _MANY_IN_FLIGHT,
        "connections_max_idle_ms": options.connections_max_idle_ms if options.connections_max_idle_ms > 0 else LONG_MAX,
        "security_protocol": options.security_protocol,
        "ssl_context": context,
        "sasl_mechanism": options.sasl_mechanism,
        "sasl_plain_username": options.sasl_username,
        "sasl_plain_password": options.sasl_password,
        "sasl_oauth_token_provider": sasl_login(options) or tokens,
        "client_dns_lookup": options.client_dns_lookup,
    }
