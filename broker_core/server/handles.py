"""Give a test's hands what it may do to a running server: brokers that go and come, time that moves."""

from dataclasses import dataclass

from broker_core.broker.fault_injection import Crashed
from broker_core.server.thread import ServerThread
from broker_core.server.virtual_time import VirtualClock


@dataclass(frozen=True)
class BrokerHandle:
    """Stop, crash and start one broker id; got from `EmbeddedBroker.broker`."""

    broker_id: int
    _thread: ServerThread

    def stop(self) -> None:
        """Close its listeners and connections in good order; others lead and coordinate what it did, until `start`."""
        self._leave(abruptly=False)

    def crash(self) -> None:
        """Break its connections at once; others take over. With the last one all brokers crash: see there."""
        self._leave(abruptly=True)

    def start(self) -> None:
        """Start it at its old address, to lead what it led; nothing happens if it runs. Not from inside a fault."""
        self._thread.wait_for(lambda server: server.broker_comes(self.broker_id))

    @property
    def is_running(self) -> bool:
        """Say whether clients reach it."""
        return not self._thread.running().is_away(self.broker_id)

    def _leave(self, *, abruptly: bool) -> None:
        self._thread.act(lambda server: server.broker_leaves(self.broker_id, abruptly=abruptly))
        if not self._thread.is_here:
            self._thread.wait_for(lambda server: server.all_shut())
        elif self._thread.running().is_down:
            raise Crashed


@dataclass(frozen=True)
class ClockHandle:
    """Move the time of a broker whose clock is virtual; got from `EmbeddedBroker.clock`."""

    _thread: ServerThread
    _clock: VirtualClock

    def now_ms(self) -> int:
        """Return the broker's time, in milliseconds since 1970."""
        return self._clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Let time pass and do what comes due, each thing at its own time: timeouts, sessions, retention.

        Clients get no turn in between: a member of a group that could not send a heartbeat is gone afterwards.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        self._thread.act(
            lambda server: self._clock.pass_by(round(seconds * 1000), server.cluster.next_deadline_ms, server.advance)
        )
