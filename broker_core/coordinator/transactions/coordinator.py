"""The transaction coordinator: decisions by table, their records, and orders for markers (KIP-98, KIP-360, KIP-890).

Every request is handled in the same way. Its facts are computed from the stored image, a table gives the verdict, the
verdict's record is appended to the state log, and only the replay of that record changes the stored image. A
refused record changes nothing, so a failed fence does not change the epoch, and the next attempt fences with
the same one. The answer describes the log; the caller makes the log durable before it sends the answer.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.coordinator.journal import Journal
from broker_core.coordinator.patterns import NamePattern
from broker_core.coordinator.transactions.completion import TransactionCompletion
from broker_core.coordinator.transactions.conditions import (
    NO_EXPECTATION,
    claim,
    expectation,
    id_form,
    is_exhausted,
    two_phase,
)
from broker_core.coordinator.transactions.decision_tables import (
    ADD,
    END_V1,
    END_V2,
    ENDED,
    INIT,
    INIT_REQUEST,
    VERIFY,
    AnsweredIdentity,
    TransitionVerdict,
)
from broker_core.coordinator.transactions.messages import InitProducerId, ProducerIdResult, TransactionList
from broker_core.coordinator.transactions.records import BY_LABEL, IDLE, TransactionImage, encode_key
from broker_core.coordinator.transactions.store import TransactionEntry, TransactionStore
from broker_core.coordinator.transactions.transitions import fresh_image
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import NEVER_TIMES_OUT_MS, ProducerIdentity, TopicPartition, TransactionState

# The size of a batch header, and of a tombstone without its key: at most five varints and the attributes.
_BATCH_HEADER_BYTES: Final = 61
_RECORD_OVERHEAD_BYTES: Final = 30


def has_timed_out(image: TransactionImage, now_ms: int) -> bool:
    """Return whether the broker has to abort the transaction; with two-phase commit it never times out."""
    return (
        image.state is TransactionState.ONGOING
        and image.timeout_ms != NEVER_TIMES_OUT_MS
        and image.start_ms + image.timeout_ms < now_ms
    )


def tombstone_batches(transactional_ids: Sequence[str], limit_bytes: int) -> Iterator[list[str]]:
    """Split ids so that the tombstones of each part fit into one batch of the topic."""
    batch: list[str] = []
    size_bytes = _BATCH_HEADER_BYTES
    for transactional_id in transactional_ids:
        record_bytes = len(encode_key(transactional_id)) + _RECORD_OVERHEAD_BYTES
        if batch and size_bytes + record_bytes > limit_bytes:
            yield batch
            batch, size_bytes = [], _BATCH_HEADER_BYTES
        batch.append(transactional_id)
        size_bytes += record_bytes
    if batch:
        yield batch


class Scan:
    """The schedule of a scan that is repeated after an interval."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms: Final = interval_ms
        self.next_ms: int | None = None

    def start(self, now_ms: int) -> None:
        if self.next_ms is None:
            self.next_ms = now_ms + self._interval_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether the scan is due, and if so schedule the next one."""
        if self.next_ms is None or now_ms < self.next_ms:
            return False
        self.next_ms = now_ms + self._interval_ms
        return True


logger = logging.getLogger(__name__)


class TransactionCoordinator:
    """The transaction coordinator of one broker id.

    `next_producer_id` raises `KafkaError` if none is available. `transaction_version` returns the level
    of the cluster feature and is called each time, so the level may change at run time.
    `partition_exists` distinguishes a partition whose marker has to wait from a deleted one; it has to
    know the topics before `become_leader` is called. `completion` has the markers to be written, and takes the answers.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        journal: Journal,
        next_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
        partition_count: int,
        partition_exists: Callable[[TopicPartition], bool],
    ) -> None:
        self._config: Final = config
        self._next_producer_id: Final = next_producer_id
        self.store: Final = TransactionStore(journal, partition_count, transaction_version, next_producer_id)
        self.completion: Final = TransactionCompletion(self.store, transaction_version, partition_exists)
        self._abort_scan: Final = Scan(config.transaction_abort_interval_ms)
        self._expire_scan: Final = Scan(config.transaction_expire_interval_ms)

    # Leadership

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Load a state partition, and queue the markers of its prepared transactions under the new epoch.

        A call with an older epoch than the current one is ignored. If the journal cannot be read
        the error is raised and requests are answered with COORDINATOR_LOAD_IN_PROGRESS; call again then.
        """
        led = self.store.led.get(partition)
        if led is not None and coordinator_epoch < led.coordinator_epoch:
            return
        self.completion.drop_partition(partition)
        self._abort_scan.start(now_ms)
        self._expire_scan.start(now_ms)
        self.store.load(partition, coordinator_epoch)
        self.completion.resume(partition, now_ms)

    def resign(self, partition: int) -> None:
        self.store.led.pop(partition, None)
        self.completion.drop_partition(partition)

    # InitProducerId

    def init_producer_id(self, request: InitProducerId, now_ms: int) -> ProducerIdResult:
        """Assign a producer id and epoch (rules A.5); CONCURRENT_TRANSACTIONS while a transaction completes."""
        try:
            refused = self._check_init(request)
            if refused is ErrorCode.NONE:
                return ProducerIdResult(ErrorCode.NONE, self._next_producer_id(), 0)
            if refused is not None:
                return ProducerIdResult(refused)
            assert request.transactional_id is not None, "an id of None never gets past the table"
            return self._init_transactional(request.transactional_id, request, now_ms)
        except KafkaError as error:
            return ProducerIdResult(error.code)

    def _check_init(self, request: InitProducerId) -> ErrorCode | None:
        """Return the answer if it does not depend on state, else None."""
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
        half = expected != NO_EXPECTATION and -1 in expected
        return INIT_REQUEST.resolve(
            half_expectation=half,
            form=id_form(request.transactional_id),
            two_phase=two_phase(request, self._config.transaction_two_phase_commit_enable),
            keep_prepared=request.keep_prepared,
            timeout_fits=0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms,
        )

    def _init_transactional(self, transactional_id: str, request: InitProducerId, now_ms: int) -> ProducerIdResult:
        entry = self.store.find(transactional_id)
        if entry is None:
            # It is stored only when its first record is in the log.
            entry = TransactionEntry(transactional_id, fresh_image(self._next_producer_id(), now_ms))
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
        verdict = INIT.resolve(
            state=entry.image.state,
            pending=self.completion.pending(transactional_id),
            exhausted=is_exhausted(entry.image.producer_epoch),
            expectation=expectation(entry.image, entry.last_producer_epoch, expected),
        )
        if verdict.next_state is TransactionState.PREPARE_EPOCH_FENCE:
            self.completion.abort_ongoing(entry, now_ms)
        if verdict.error:
            return ProducerIdResult(verdict.error)
        timeout_ms = NEVER_TIMES_OUT_MS if request.enable_2pc else request.transaction_timeout_ms
        written = self.store.write(entry, verdict, now_ms, timeout_ms=timeout_ms)
        return ProducerIdResult(ErrorCode.NONE, *written.identity)

    # AddPartitionsToTxn

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        client_transaction_version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Add the partitions to the transaction, beginning one if there is none (rules A.6, A.7).

        `client_transaction_version` is 2 if a partition leader or group coordinator adds them for a client
        that uses transactions V2, else 0.
        """
        try:
            entry = self._known(transactional_id)
            verdict = ADD.resolve(
                state=entry.image.state,
                pending=self.completion.pending(entry.transactional_id),
                claim=claim(entry.image, producer),
                all_in=entry.image.partitions.issuperset(partitions),
            )
            if verdict.image is not None:
                self.store.write(
                    entry,
                    verdict,
                    now_ms,
                    partitions=frozenset(partitions),
                    client_transaction_version=client_transaction_version,
                )
        except KafkaError as error:
            return error.code
        return verdict.error

    def verify_partitions(
        self, transactional_id: str | None, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it belongs to the transaction (rules A.6 verify)."""
        try:
            image = self._known(transactional_id).image
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        claimed = claim(image, producer)
        return {
            one: VERIFY.resolve(state=image.state, claim=claimed, is_in=one in image.partitions) for one in partitions
        }

    # EndTxn

    def end_transaction(
        self,
        transactional_id: str | None,
        producer: ProducerIdentity,
        *,
        commit: bool,
        client_transaction_version: int,
        now_ms: int,
    ) -> ProducerIdResult:
        """End the transaction (rules A.8); its markers are written afterwards.

        `client_transaction_version` is 2 for EndTxn 5 and later, whatever the cluster's level; a successful answer then
        has the producer id and epoch to use next.
        """
        bumps = client_transaction_version >= 2
        try:
            entry = self._known(transactional_id)
            verdict = (END_V2 if bumps else END_V1).resolve(
                state=entry.image.state,
                pending=self.completion.pending(entry.transactional_id),
                claim=claim(entry.image, producer),
                commit=commit,
            )
            if verdict.error:
                return ProducerIdResult(verdict.error)
            if verdict.image is None:
                return _answer(verdict.answer, entry.image)
            if bumps:
                image = ENDED.resolve(bumps=True, exhausted=is_exhausted(entry.image.producer_epoch))
                verdict = TransitionVerdict(verdict.error, verdict.next_state, image, verdict.answer)
            written = self.store.write(entry, verdict, now_ms)
            self.completion.send_markers(entry, now_ms)
        except KafkaError as error:
            return ProducerIdResult(error.code)
        return _answer(verdict.answer, written)

    # DescribeTransactions, ListTransactions

    def describe(self, transactional_id: str) -> TransactionImage | ErrorCode:
        """Return the state of one transactional id (rules F.2), with the partitions that have no marker yet."""
        try:
            entry = self._known(transactional_id, absent=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        except KafkaError as error:
            return error.code
        return entry.image._replace(partitions=self.completion.remaining(entry))

    def list_transactions(
        self, states: Collection[str], producer_ids: Collection[int], duration_ms: int, pattern: str | None, now_ms: int
    ) -> TransactionList:
        """List the transactional ids led here (rules F.3); empty filters, `duration_ms` -1 and `pattern` None keep all.

        The answer has INVALID_REGULAR_EXPRESSION for an invalid pattern.
        """
        if any(led.loading for led in self.store.led.values()):
            return TransactionList(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            expression = NamePattern(pattern) if pattern else None
        except KafkaError as error:
            return TransactionList(error.code)
        # If all states are unknown, none matches. Without a start time every duration is exceeded, as in Kafka.
        found = {
            transactional_id: image
            for transactional_id, image in self.images().items()
            if (not states or image.state.label in states)
            and (not producer_ids or image.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - image.start_ms > duration_ms)
            and (expression is None or expression.matches(transactional_id))
        }
        unknown = dict.fromkeys(name for name in states if name not in BY_LABEL)
        return TransactionList(ErrorCode.NONE, tuple(unknown), found)

    def images(self) -> dict[str, TransactionImage]:
        return {entry.transactional_id: entry.image for entry in self.store.entries()}

    # Jobs

    def advance(self, now_ms: int) -> None:
        """Run what is due: retry markers, abort timed-out transactions, expire unused ids (rules A.11)."""
        self.completion.retry_due(now_ms)
        if self._abort_scan.is_due(now_ms):
            self._abort_timed_out(now_ms)
        if self._expire_scan.is_due(now_ms):
            self._expire_ids(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return the time when `advance` next has work; None while no partition is led here."""
        if not self.store.led:
            return None
        deadlines = (self.completion.next_due_ms(), self._abort_scan.next_ms, self._expire_scan.next_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def _abort_timed_out(self, now_ms: int) -> None:
        for entry in self.store.entries():
            if not has_timed_out(entry.image, now_ms):
                continue
            try:
                self.completion.abort_ongoing(entry, now_ms)
            except KafkaError as error:
                logger.warning(
                    "timed-out transaction of %s was not aborted: %s; the next scan tries again",
                    entry.transactional_id,
                    error,
                )

    def _expire_ids(self, now_ms: int) -> None:
        for number, led in list(self.store.led.items()):
            # The ids that have been idle for longer than their expiration time.
            expired = [
                entry.transactional_id
                for entry in led.entries.values()
                if not led.loading
                and entry.image.state in IDLE
                and entry.image.update_ms <= now_ms - self._config.transactional_id_expiration_ms
            ]
            for batch in tombstone_batches(expired, self.store.max_batch_bytes(number)):
                try:
                    self.store.remove(number, batch, now_ms)
                except KafkaError as error:
                    logger.warning(
                        "%d unused transactional ids were not expired: %s; the next scan tries again", len(batch), error
                    )

    # Shared

    def _known(
        self, transactional_id: str | None, absent: ErrorCode = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ) -> TransactionEntry:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        entry = self.store.find(transactional_id)
        if entry is None:
            raise KafkaError(absent, f"no transactional id {transactional_id!r}")
        return entry


def _answer(answer: AnsweredIdentity, image: TransactionImage) -> ProducerIdResult:
    if answer is AnsweredIdentity.NOTHING:
        return ProducerIdResult(ErrorCode.NONE)
    identity = image.next_identity if answer is AnsweredIdentity.NEXT else image.identity
    return ProducerIdResult(ErrorCode.NONE, *identity)
