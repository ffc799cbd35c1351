"""For any actions of clients, leaders and clocks, a transaction has one outcome and its state matches its log."""

from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.coordinator.transactions.decision_tables import MARKER_ACTIONS, MarkerAction
from broker_core.coordinator.transactions.messages import InitProducerId, MarkerOrder
from broker_core.coordinator.transactions.records import IDLE, PREPARED, TransactionImage
from broker_core.coordinator.transactions.store import TransactionStore
from broker_core.coordinator.transactions.transitions import broken, step_rules, stored_rules
from broker_core.errors import ErrorCode
from broker_core.types import FENCING_EPOCH, ProducerIdentity, TopicPartition, TransactionState
from tests.support.broker_core.transaction_world import ID, World
from tests.support.examples import examples

PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
)
MARKER_ANSWERS = (
    *[ErrorCode.NONE] * 6,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
NO_IDENTITY = ProducerIdentity(-1, -1)
choices = st.integers(0, 2**16)


class TransactionMachine(RuleBasedStateMachine):
    """One transactional id whose clients keep, forget and repeat identities at random.

    `levels` are the levels of the cluster feature, `versions` the transaction versions of the clients.
    """

    levels: tuple[int, ...] = (0, 1, 2)
    versions: tuple[int, ...] = (0, 2)

    @initialize(epoch=st.sampled_from([-1, -1, 5, 32763, 32764, 32765, 32766]), level=choices)
    def begin(self, epoch: int, level: int) -> None:
        self.world = World(
            self.levels[level % len(self.levels)], partition_count=1, transactional_id_expiration_ms=7_200_000
        )
        self.zombies: list[TransactionCoordinator] = []
        self.held: list[ProducerIdentity] = [NO_IDENTITY]
        self.granted: dict[ProducerIdentity, ProducerIdentity] = {}
        # Each order with the record that it comes from, and the partitions written, by that record and its sender.
        self.orders: list[tuple[TransactionCoordinator, MarkerOrder, int]] = []
        self.written: dict[tuple[int, int], set[TopicPartition]] = {}
        self.ended_by_clients: set[int] = set()
        self.checked = 0
        if epoch >= 0:
            image = TransactionImage(9, epoch, 60_000, TransactionState.EMPTY, frozenset(), self.world.now_ms, -1, 9)
            self.held.append(self.world.put(image))
        else:
            self.grant(NO_IDENTITY, self.world.identity())

    # Choices of the rules

    def coordinator(self, choice: int) -> TransactionCoordinator:
        """Return the leader, or now and then a coordinator that does not know of its replacement."""
        everyone = [self.world.coordinator] * 4 + self.zombies
        return everyone[choice % len(everyone)]

    def identity(self, choice: int) -> ProducerIdentity:
        """Return the newest identity that was assigned, or now and then one of its predecessors."""
        recent = [*reversed(self.held[-4:])]
        return recent[(0, 0, 0, 1, 1, 2, 3)[choice % 7] % len(recent)]

    def history(self) -> list[TransactionImage | None]:
        return self.world.history()

    def grant(self, holder: ProducerIdentity, identity: ProducerIdentity) -> None:
        """Check that an identity goes to one holder, or again to the holder whose response was lost."""
        assert 0 <= identity.producer_epoch < FENCING_EPOCH
        if identity in self.granted:
            assert holder != NO_IDENTITY
            assert self.granted[identity] == holder, f"{identity} for {self.granted[identity]} and {holder}"
        self.granted[identity] = holder
        self.held.append(identity)

    # Actions

    @rule(who=choices, expected=choices, forget=st.booleans(), seldom=st.integers(0, 3))
    def init(self, who: int, expected: int, forget: bool, seldom: int) -> None:
        if seldom:
            return
        believed = NO_IDENTITY if forget else self.identity(expected)
        fresh = ID not in self.world.coordinator.images()
        answer = self.coordinator(who).init_producer_id(InitProducerId(ID, 60_000, *believed), self.world.now_ms)
        if answer.error is ErrorCode.NONE:
            identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self.grant(NO_IDENTITY if fresh else believed, identity)
            last = self.history()[-1]
            assert last is not None
            assert (last.identity, last.state) == (identity, TransactionState.EMPTY)

    @rule(who=choices, holder=choices, partition=st.sampled_from(PARTITIONS), version=choices)
    def add(self, who: int, holder: int, partition: TopicPartition, version: int) -> None:
        held, coordinator = self.identity(holder), self.coordinator(who)
        error = coordinator.add_partitions(
            ID,
            held,
            [partition],
            client_transaction_version=self.versions[version % len(self.versions)],
            now_ms=self.world.now_ms,
        )
        if error is ErrorCode.NONE and coordinator is self.world.coordinator:
            image = self.world.image()
            assert image.state is TransactionState.ONGOING
            assert (image.identity, partition in image.partitions) == (held, True)

    @rule(who=choices, holder=choices, commit=st.booleans(), version=choices)
    def end(self, who: int, holder: int, commit: bool, version: int) -> None:
        held, used = self.identity(holder), self.versions[version % len(self.versions)]
        before = len(self.history())
        answer = self.coordinator(who).end_transaction(
            ID, held, commit=commit, client_transaction_version=used, now_ms=self.world.now_ms
        )
        if answer.error is not ErrorCode.NONE:
            assert answer[1:] == (-1, -1)
            return
        self.ended_by_clients.update(range(before, len(self.history())))
        ended = ProducerIdentity(held.producer_id, held.producer_epoch + (1 if used == 2 else 0))
        states = {TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT}
        if used != 2:  # V1 accepts a repeated end if the last one had the same result.
            states.add(TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
        assert any(image and image.identity == ended and image.state in states for image in self.history())
        if used == 2:
            self.grant(held, ProducerIdentity(answer.producer_id, answer.producer_epoch))
        else:
            assert answer[1:] == (-1, -1)

    @rule(holder=choices, version=choices, commit=st.booleans(), partition=st.sampled_from(PARTITIONS))
    def another_whole_transaction(self, holder: int, version: int, commit: bool, partition: TopicPartition) -> None:
        """Make `whole_transaction` twice as likely."""
        self.whole_transaction(holder, version, commit, partition)

    @rule(holder=choices, version=choices, commit=st.booleans(), partition=st.sampled_from(PARTITIONS))
    def whole_transaction(self, holder: int, version: int, commit: bool, partition: TopicPartition) -> None:
        """Begin, end and complete a transaction at the leader without interruption."""
        self.add(0, holder, partition, version)
        self.end(0, holder, commit, version)
        self.take_markers(0)
        for index in reversed(range(len(self.orders))):
            self.answer(index, ErrorCode.NONE, some=False, again=False)

    @rule(who=choices)
    def take_markers(self, who: int) -> None:
        coordinator = self.coordinator(who)
        for order in coordinator.completion.take():
            state = TransactionState.PREPARE_COMMIT if order.end.commit else TransactionState.PREPARE_ABORT
            ended = order.end.producer
            sources = [
                index
                for index, image in enumerate(self.history())
                if image and (image.identity, image.state) == (ended, state)
            ]
            self.orders.append((coordinator, order, sources[-1]))

    @rule(which=choices, error=st.sampled_from(MARKER_ANSWERS), some=st.booleans(), again=st.booleans())
    def answer(self, which: int, error: ErrorCode, some: bool, again: bool) -> None:
        if not self.orders:
            return
        index = which % len(self.orders)
        coordinator, order, source = self.orders[index] if again else self.orders.pop(index)
        partitions = sorted(order.partitions)[:1] if some else sorted(order.partitions)
        if some and not again and len(order.partitions) > 1:
            self.orders.append((coordinator, order, source))
        if MARKER_ACTIONS.get(error) is MarkerAction.DONE:
            self.written.setdefault((source, order.end.coordinator_epoch), set()).update(partitions)
        coordinator.completion.answered(order, dict.fromkeys(partitions, error), self.world.now_ms)

    @rule(by_ms=st.sampled_from([1, 50, 1000, 10_000, 70_000, 4_000_000, -5000]), who=choices)
    def advance(self, by_ms: int, who: int) -> None:
        self.world.now_ms += by_ms
        self.coordinator(who).advance(self.world.now_ms)

    @rule()
    def fail_over(self) -> None:
        self.zombies = [*self.zombies[-1:], self.world.fail_over()]

    @rule(seldom=st.integers(0, 3))
    def reload(self, seldom: int) -> None:
        if seldom:
            return
        self.world.lead()

    @rule(refusal=st.sampled_from(REFUSALS), seldom=st.integers(0, 3))
    def refuse_the_next_record(self, refusal: ErrorCode, seldom: int) -> None:
        if seldom:
            return
        self.world.journal.refuse_next = [refusal]

    @rule(level=choices)
    def change_level(self, level: int) -> None:
        self.world.level = self.levels[level % len(self.levels)]

    @rule(partition=st.sampled_from(PARTITIONS), seldom=st.integers(0, 3))
    def delete_or_create_partition(self, partition: TopicPartition, seldom: int) -> None:
        if seldom:
            return
        self.world.gone ^= {partition}

    # Invariants

    @invariant()
    def state_is_what_a_replay_of_the_journal_gives(self) -> None:
        store = TransactionStore(self.world.journal, 1, lambda: self.world.level, int)
        store.load(0, 0)
        assert {one.transactional_id: one.image for one in store.entries()} == self.world.coordinator.images()

    @invariant()
    def each_new_record_is_a_legal_step(self) -> None:
        history = self.history()
        for index in range(max(1, self.checked), len(history)):
            old, new = history[index - 1], history[index]
            if old is not None and new is not None:
                assert broken(step_rules(old, new) | stored_rules(new)) == []
                if new.producer_id != old.producer_id:
                    assert new.producer_id not in {one.producer_id for one in history[:index] if one}
            elif new is None:
                assert old is not None
                assert old.state in IDLE
            if old is not None and new is not None and old.state in PREPARED:
                self._completed(index - 1, old)
            if new is not None and new.state in PREPARED and index not in self.ended_by_clients:
                assert old is not None
                assert new.identity != old.identity, "the broker ended a transaction without fencing its producer"
        self.checked = len(history)

    def _completed(self, source: int, prepared: TransactionImage) -> None:
        """Check that each partition answered the current leader or was deleted."""
        written = self.written.get((source, self.world.journal.epochs[0]), set())
        missing = prepared.partitions - written - self.world.gone
        assert not missing, f"{prepared} completed without {missing}"

    @invariant()
    def no_transaction_has_two_outcomes(self) -> None:
        prepared: TransactionImage | None = None
        outcomes: dict[Any, TransactionState] = {}
        for image in self.history():
            if image is not None and image.state in PREPARED:
                assert prepared is None, "prepared twice"
                prepared = image
                if image.client_transaction_version >= 2:
                    assert outcomes.setdefault(image.identity, image.state) is image.state
            elif prepared is not None:
                assert image is not None
                expected = {
                    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
                    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
                }
                assert image.state is expected[prepared.state]
                prepared = None


class V2Machine(TransactionMachine):
    """Clients of transactions V2 only: each transaction has an identity of its own (KIP-890)."""

    levels = (2,)
    versions = (2,)

    @invariant()
    def one_identity_is_one_transaction(self) -> None:
        ends = [image.identity for image in self.history() if image is not None and image.state in PREPARED]
        assert len(ends) == len(set(ends))


_SETTINGS = examples(150, stateful_step_count=50, suppress_health_check=list(HealthCheck))
TestMixedGenerations = TransactionMachine.TestCase
TestMixedGenerations.settings = _SETTINGS
TestV2Only = V2Machine.TestCase
TestV2Only.settings = _SETTINGS
