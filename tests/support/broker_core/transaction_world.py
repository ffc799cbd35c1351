"""Transaction coordinators over one in-memory journal, with a clock that a test advances."""

from broker_core.config import BrokerConfig
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.producer_ids import ProducerIds
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.coordinator.transactions.messages import InitProducerId, MarkerOrder, ProducerIdResult
from broker_core.coordinator.transactions.records import IDLE, TransactionImage, decode_value, encode_key, encode_value
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from tests.support.broker_core.memory_journal import MemoryJournal

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ID = "my-txn"


class World:
    """One leading coordinator, its journal, and what it needs of its broker."""

    def __init__(self, level: int = 2, partition_count: int = 4, **settings: object) -> None:
        self.journal = MemoryJournal()
        self.level = level
        self.partition_count = partition_count
        self.config = BrokerConfig(**settings)  # type: ignore[arg-type]
        self.now_ms = 1_700_000_000_000
        self.gone: set[TopicPartition] = set()
        self.first_block = 4000
        self.blocks_fail = False
        self.producer_ids = ProducerIds(self._block)
        self.coordinator = self.instance()
        self.lead()

    def _block(self) -> tuple[int, int]:
        if self.blocks_fail:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "ordered by the test")
        self.first_block += 1000
        return self.first_block - 1000, 1000

    def instance(self) -> TransactionCoordinator:
        """Return another coordinator over the same journal, which leads no partition yet."""
        return TransactionCoordinator(
            config=self.config,
            journal=self.journal,
            next_producer_id=lambda: self.producer_ids.next(),
            transaction_version=lambda: self.level,
            partition_count=self.partition_count,
            partition_exists=lambda one: one not in self.gone,
        )

    def lead(self) -> None:
        """Make the coordinator the leader of every partition, at new leader epochs."""
        for partition in range(self.partition_count):
            self.coordinator.become_leader(partition, self.journal.lead(partition), self.now_ms)

    def fail_over(self) -> TransactionCoordinator:
        """Replace the coordinator by a new one that loads the journal; return the old one."""
        old, self.coordinator = self.coordinator, self.instance()
        self.lead()
        return old

    def init(
        self, transactional_id: str | None = ID, producer_id: int = -1, producer_epoch: int = -1
    ) -> ProducerIdResult:
        """Send InitProducerId, optionally with the current producer id and epoch."""
        request = InitProducerId(transactional_id, 60_000, producer_id, producer_epoch)
        return self.coordinator.init_producer_id(request, self.now_ms)

    def identity(self, transactional_id: str = ID) -> ProducerIdentity:
        """Send InitProducerId, which must succeed."""
        error, *identity = self.init(transactional_id)
        assert error is ErrorCode.NONE
        return ProducerIdentity(*identity)

    def add(self, identity: ProducerIdentity, *partitions: TopicPartition, version: int | None = None) -> ErrorCode:
        """Add partitions as a client of the given transaction version, by default that of the cluster."""
        used = version if version is not None else 2 if self.level >= 2 else 0
        return self.coordinator.add_partitions(
            ID, identity, partitions or (T0,), client_transaction_version=used, now_ms=self.now_ms
        )

    def end(self, identity: ProducerIdentity, *, commit: bool = True, version: int | None = None) -> ProducerIdResult:
        """End the transaction as a client of the given transaction version, by default that of the cluster."""
        return self.coordinator.end_transaction(
            ID,
            identity,
            commit=commit,
            client_transaction_version=self.level if version is None else version,
            now_ms=self.now_ms,
        )

    def answer(self, order: MarkerOrder, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer all partitions of a marker request with one error code."""
        self.coordinator.completion.answered(order, dict.fromkeys(order.partitions, error), self.now_ms)

    def run_markers(self) -> list[MarkerOrder]:
        """Write every marker that is ready; return the marker requests."""
        orders = self.coordinator.completion.take()
        for order in orders:
            self.answer(order)
        return orders

    def advance(self, by_ms: int) -> None:
        """Advance the clock."""
        self.now_ms += by_ms
        self.coordinator.advance(self.now_ms)

    def image(self, transactional_id: str = ID) -> TransactionImage:
        """Return the stored state of an id."""
        return self.coordinator.images()[transactional_id]

    def state(self) -> str:
        """Return the state of the id as clients see it."""
        return self.image().state.label

    def history(self, transactional_id: str = ID) -> list[TransactionImage | None]:
        """Return the recorded states of an id, in order; None stands for a tombstone."""
        entries = self.journal.partitions.get(self.coordinator.store.partition_for(transactional_id), [])
        key_end = transactional_id.encode()
        return [
            None if entry.value is None else decode_value(entry.value)
            for entry in entries
            if entry.key is not None and entry.key[4:] == key_end
        ]

    def at(self, state: TransactionState, producer_epoch: int, client_transaction_version: int = 0) -> ProducerIdentity:
        """Put the id into a state at an epoch of producer id 9."""
        partitions = frozenset() if state in IDLE else frozenset({T0})
        start_ms = -1 if state is TransactionState.EMPTY else self.now_ms
        return self.put(
            TransactionImage(
                9, producer_epoch, 60_000, state, partitions, self.now_ms, start_ms, 9, -1, client_transaction_version
            )
        )

    def put(self, image: TransactionImage, transactional_id: str = ID) -> ProducerIdentity:
        """Put the id into the state `image`, as if an earlier coordinator had left it there."""
        partition = self.coordinator.store.partition_for(transactional_id)
        record = JournalRecord(encode_key(transactional_id), encode_value(image, 1))
        self.journal.append(partition, self.journal.epochs[partition], [record], self.now_ms)
        self.lead()
        return image.identity
