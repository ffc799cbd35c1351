"""The decision log of a query: it finds the newest decision, and adds one that no older driver can follow.

The pointer, an offset in the query's consumer group, and the decision it points to are written in one transaction of
the driver's transactional id, whose end is the commit point of the micro-batch. A driver initializes the id before it
reads the pointer, so an older driver cannot add a decision between the read and the write.

The first decision of a query fixes the prefix of these names, so that a changed `transactionalIdPrefix` hides none. Two
drivers with different prefixes do not fence each other before that, so each reads the topic again while its first
decision is open: one of the two finds the other's.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from broker_core.errors import ErrorCode
from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import OUTAGES, EosKafkaError, FencedError, TransactionError
from spark_eos.open_transaction import EndAnswer
from spark_eos.sink.decision import (
    NO_DECISION,
    Decision,
    Pointer,
    Rank,
    UnreadableDecisionError,
    read_pointer,
    write_decision,
    write_pointer,
)
from spark_eos.sink.naming import decision_key, decision_partition, driver_id, group_id, run_again
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.answers import CommittedOffset, DecisionWrite, UnstableOffsetsError
from spark_eos.sink.protocol.decision_errors import (
    OutdatedError,
    UndecidedError,
    foreign_offset_error,
    newer_driver_error,
    outdated_error,
    repeated_error,
    too_late_error,
    unclear_error,
    undecided_error,
)
from spark_eos.sink.protocol.decision_reader import DecisionScan, other_topic_error, read_decision
from spark_eos.sink.protocol.descriptions import abort_described, describe_since
from spark_eos.sink.protocol.driver_identity import DriverIdentity, beyond, following_identity, is_kept, taken_after
from spark_eos.sink.protocol.retry_policy import rule_of

# A running driver writes its decision within milliseconds. One that died between writing and ending is not waited for.
UNSTABLE_PATIENCE_MS: Final = 5_000
UNSTABLE_LIMIT_MS: Final = 60_000
DRIVER_TIMEOUT_MS: Final = 30_000
_Answer = TypeVar("_Answer")
# Checks the transactions that are decided on; returns until when deciding is allowed, or raises.
Verify: TypeAlias = Callable[[], Awaitable[int]]


class DecisionLog:
    """The decisions of one query on one cluster, as one run of it sees them in one process."""

    def __init__(
        self, prefix: str, query: str, topic: str, driver_timeout_ms: int = DRIVER_TIMEOUT_MS, *, run: str = ""
    ) -> None:
        self._query = query
        self._topic = topic
        self._driver_timeout_ms = driver_timeout_ms
        self._go_by(prefix)
        # With who has written it.
        self._newest: tuple[Pointer, Decision, ProducerIdentity | None] | None = None
        self._highest: Pointer | None = None
        # Whose open decision this process has ended last.
        self._ended: ProducerIdentity | None = None
        self.scan = DecisionScan(topic, query, run)
        self._is_scanned = False
        # The last micro-batch and write that a task of this process found undecided.
        self._undecided: tuple[int, str] | None = None

    def _go_by(self, prefix: str) -> None:
        # An earlier prefix than the options have, if the decisions have it.
        self.prefix = prefix
        self._group = group_id(prefix, self._query)
        self._driver = driver_id(prefix, self._query)
        self._place: TopicPartition | None = None

    async def take_over(self) -> DriverIdentity:
        """Become the only driver of the query: fence every older one and abort its open decision."""
        taken = await asks.InitProducerId(self._driver, self._driver_timeout_ms)
        # At the last epoch, ending a transaction changes the producer id, which `renew` would mistake for another
        # driver.
        while taken.producer.producer_epoch >= LAST_CLIENT_EPOCH:
            taken = await asks.InitProducerId(self._driver, self._driver_timeout_ms)
        self.scan_again()
        return DriverIdentity(taken)

    async def renew(self, driver: DriverIdentity) -> DriverIdentity:
        """Get a new epoch; raise `FencedError` if another driver has taken over the id.

        A driver that takes over after the check is fenced, and an id that its coordinator has forgotten is taken
        without one. So read `newest` again afterwards, as after `take_over`.
        """
        bumps = 1 if driver.transaction.transaction_version >= 2 else 0
        expected = ProducerIdentity(driver.producer.producer_id, driver.producer.producer_epoch + bumps)
        described = await describe_since(self._driver, expected)
        if described is not None and described.producer != expected:
            raise newer_driver_error(self._query, self.scan.run, described, expected)
        return await self.take_over()

    async def beyond(self, driver: DriverIdentity) -> DriverIdentity:
        return await beyond(driver, self._newest and self._newest[2], self.take_over)

    async def newest(self, since: int = 0, patience_ms: int = UNSTABLE_PATIENCE_MS) -> Decision | None:
        """Return the newest decision of any driver, or None if there is none for micro-batch `since` or later.

        Usually the pointer alone shows that the newest is older, which takes one OffsetFetch. A decision that is
        written but not ended after `patience_ms` is aborted. A newer one that was scanned wins.
        """
        pointer = await self._newest_pointer(await self._stable_offsets(patience_ms))
        if pointer is not None and (self._highest is None or pointer.rank > self._highest.rank):
            self._highest = pointer
        if pointer is None:
            return await self._newest_by_scan(since)
        unpointed = self.scan.newer(self.prefix, pointer.rank)
        if unpointed is not None:
            return unpointed if unpointed.micro_batch >= since else None
        return None if pointer.rank.micro_batch < since else await self._pointed_at(pointer)

    async def _pointed_at(self, pointer: Pointer) -> Decision:
        """Return the decision, or a newer one if Kafka has compacted it: then the pointer is behind.

        If too many records of other queries lie between its parts, only a scan finds all of them.
        """
        if self._newest is None or self._newest[0] != pointer:
            try:
                self._newest = (pointer, *await read_decision(pointer, self.prefix, self._query, self.scan.run))
            except UnreadableDecisionError:
                await self._look_around()
                found = self.scan.newer(self.prefix, pointer.rank._replace(revision=pointer.rank.revision - 1))
                if found is None or (found.rank == pointer.rank and not pointer.is_to(found)):
                    raise
                return found
        return self._newest[1]

    async def newest_elsewhere(self) -> Decision | None:
        """Return the newest decision from the coordinator that another broker names; ranks only grow."""
        known = self._highest
        await asks.ForgetCoordinators((), self._group)
        self.scan_again()
        newest = await self.newest()
        is_outdated = newest is not None and known is not None and newest.rank < known.rank
        return await self._pointed_at(known) if is_outdated and known is not None else newest

    async def pointed(self, micro_batch: int, write: str) -> Decision | None:
        """Return the newest decision for a task, by the pointer alone, or None if it is for an older micro-batch.

        A task may miss a decision, for example one that is being written: the driver, which reads the whole log,
        compares its rows. A process asks in the first micro-batch of a run that it sees, and later only when a
        micro-batch is written a second time: a run moves on only after it has committed the one before.
        """
        asked, known = (micro_batch, write), self._undecided
        if known is not None and (known == asked or known[0] < micro_batch):
            self._undecided = asked
            return None
        pointer = await self._newest_pointer(await asks.LastOffsets(self._group))
        if pointer is None or pointer.rank.micro_batch < micro_batch:
            self._undecided = asked
            return None
        return await self._pointed_at(pointer)

    async def check_newest(self, newest: Decision | None) -> None:
        """Raise `OutdatedError` if the pointer misses a decision that is newer than this one."""
        unpointed = await self.unpointed(newest)
        if unpointed is not None:
            raise OutdatedError(
                f"Query {unpointed.query} already has a decision for micro-batch {unpointed.micro_batch}, to which "
                f"group {self._group} does not point",
                rank=unpointed.rank,
                checked="The decision topic after that offset. Kafka has lost later offsets of the group",
                remedy="Nothing was decided, and nothing that this run prepared is visible: "
                f"{run_again(unpointed.query, unpointed.run)}",
            )

    async def unpointed(self, newest: Decision | None) -> Decision | None:
        """Read what follows this decision in its partition; return a newer decision, which the pointer misses."""
        pointer = self._newest[0] if self._newest is not None and self._newest[1] == newest else None
        if pointer is None or not await self.scan.read_on(pointer.topic_partition, pointer.offset):
            await self._look_around()
        return None if newest is None else self.scan.newer(self.prefix, newest.rank)

    def scan_again(self) -> None:
        """Scan again when there is no pointer: another process may have decided since."""
        self._is_scanned = False

    async def _look_around(self) -> None:
        """Scan once, until `scan_again`; every later scan reads only new records."""
        if not self._is_scanned:
            await self.scan.refresh(self.prefix)
            self._is_scanned = True

    async def _newest_by_scan(self, since: int) -> Decision | None:
        await self._look_around()
        found = self.scan.newest(self.prefix)
        if found is not None and found.prefix != self.prefix:
            await asks.warn(
                f"query or job {self._query} keeps its decisions under transactionalIdPrefix={found.prefix}, which it "
                "was started with. The driver continues to use it and ignores the option's current value "
                f"({self.prefix}). Set the option back: otherwise every start reads the whole decision topic, and "
                "tasks write rows that are already decided before they discard them"
            )
            self._go_by(found.prefix)
            # The pointer under the earlier name may know a newer decision than the scan has seen.
            return await self.newest(since)
        return found if found is not None and found.micro_batch >= since else None

    async def decide(
        self,
        decision: Decision,
        driver: DriverIdentity,
        decide_by_ms: int | None = None,
        known: Rank | None = None,
        verify: Verify | None = None,
    ) -> DriverIdentity:
        """Make the decision durable and visible, or raise `UndecidedError`, which another attempt may follow.

        Returns the identity for the next decision. If the outcome remains unknown, the error states it. After
        `decide_by_ms` nothing is decided, nor if `known` is given and not the newest one, nor if `verify` raises, which
        runs while the records are being sent.
        """
        driver = (await self.beyond(driver)).at_level(await asks.TransactionVersion())
        try:
            answer = await self._write(
                decision, driver, decision.decided_at_ms, decide_by_ms=decide_by_ms, known=known, verify=verify
            )
        except EosKafkaError as error:
            if isinstance(error, UndecidedError) or not rule_of(error).decides_again:
                raise
            reason = f"{error.happened} ({error.checked})" if error.checked else error.happened
            raise undecided_error(decision, self._group, reason, error.error_code) from error
        if answer.code is None:
            await self._end_late(decision, driver)
        if answer.code is ErrorCode.NONE or await self._is_newest(decision):
            return following_identity(driver, answer)
        if answer.code not in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            raise undecided_error(decision, self._group, f"EndTxn of its transaction got {answer.word}", answer.code)
        # The coordinator returns the same error when the decision's transaction has timed out.
        await self._look_up(decision, self.check_kept(driver))
        reason = f"writing it took more than {self._driver_timeout_ms} ms, or its coordinator was unavailable"
        raise undecided_error(decision, self._group, reason, answer.code)

    async def check_kept(self, driver: DriverIdentity) -> None:
        """Raise `FencedError` if another driver has taken over the id; the timeout of this driver does not count.

        An outdated description can hide a newer driver, which is then fenced. That stops it and duplicates nothing.
        """
        found = await describe_since(self._driver, driver.producer)
        if found is not None and not is_kept(found, driver, self._ended):
            raise newer_driver_error(self._query, self.scan.run, found, driver.producer)

    async def is_kept(self, driver: DriverIdentity) -> bool:
        found = await describe_since(self._driver, driver.producer)
        return found is not None and is_kept(found, driver, self._ended)

    def follows(self, newest: Decision, driver: DriverIdentity) -> bool:
        """Return whether this driver's take-over is the first after a decision: then none was made in between."""
        written = self._newest[2] if self._newest is not None and self._newest[1] == newest else None
        is_v2 = driver.transaction.transaction_version >= 2
        if any((each.opened.transaction_version >= 2) != is_v2 for each in newest.transactions):
            return False
        return written is not None and driver.producer == taken_after(written, is_v2=is_v2)

    async def forget_coordinators(self) -> None:
        await asks.ForgetCoordinators([self._driver], self._group)

    async def amend(
        self, decision: Decision, driver: DriverIdentity, now_ms: int, audit: tuple[bytes, bytes] | None = None
    ) -> DriverIdentity:
        """Replace the newest decision with a later revision of it and an audit record, in one transaction.

        Raises `OutdatedError` if the revision before this one is not the newest decision.
        """
        driver = (await self.beyond(driver)).at_level(await asks.TransactionVersion())
        known = decision.rank._replace(revision=decision.revision - 1)
        answer = await self._write(decision, driver, now_ms, more=() if audit is None else (audit,), known=known)
        # Compare whole decisions: two concurrent amendments have the same rank.
        if answer.code is not ErrorCode.NONE and await self._look_up(decision, self.newest()) != decision:
            raise TransactionError(
                f"The decision for micro-batch {decision.micro_batch} of query {decision.query} was not changed: "
                f"EndTxn of the transaction that changes it got {answer.word}",
                checked=f"The offset of group {self._group}, which points to another decision",
                remedy="If the query is running, stop it first; then try again",
                error_code=answer.code,
            )
        return following_identity(driver, answer)

    async def forget(
        self, decision: Decision, driver: DriverIdentity, now_ms: int, place: TopicPartition | None = None
    ) -> DriverIdentity:
        """Delete a decision that is no longer needed, so that the topic does not keep it forever.

        Raises if the deletion was refused or not answered; the decision is then unchanged.
        """
        driver = (await self.beyond(driver)).at_level(await asks.TransactionVersion())
        self._place = place or self._place
        answer = await self._write(decision, driver, now_ms, deletes=True)
        if answer.code is not ErrorCode.NONE:
            raise TransactionError(
                f"The decision of {decision.query} may not have been deleted: EndTxn of its deletion got {answer.word}",
                checked="EndTxn of the driver's transactional id",
                remedy="The decision is completed and has no further effect; its record stays in the decision topic",
                error_code=answer.code,
            )
        return following_identity(driver, answer)

    async def _write(
        self,
        decision: Decision,
        driver: DriverIdentity,
        now_ms: int,
        *,
        more: tuple[tuple[bytes, bytes], ...] = (),
        decide_by_ms: int | None = None,
        known: Rank | None = None,
        verify: Verify | None = None,
        deletes: bool = False,
    ) -> EndAnswer:
        """Write a decision, or delete it, in one transaction: the end is its commit point.

        A failure before the end is sent aborts the transaction; only then is it certain that nothing was decided. A
        failure after that is inconclusive: the end may have been recorded before its response was lost.
        """
        values = write_decision(decision)
        keys = [decision_key(self.prefix, self._query, number) for number in range(len(values))]
        self._place = self._place or await self._choose_place()
        write = DecisionWrite(
            transaction=driver.transaction,
            topic_partition=self._place,
            records=tuple((key, None) for key in keys) if deletes else (*zip(keys, values, strict=True), *more),
            group_id=self._group,
            metadata=None if deletes else write_pointer(decision, len(values)),
            now_ms=now_ms,
            micro_batch=decision.micro_batch,
            decide_by_ms=decide_by_ms,
            reads_offsets=known is not None,
        )
        try:
            appended = await asks.StartDecision(write)
            if appended.code is ErrorCode.NONE:
                if verify is not None:
                    write = write._replace(decide_by_ms=await verify())
                appended = await asks.AppendDecision(write)
            if appended.code is not ErrorCode.NONE:
                return EndAnswer(appended.code)
            if appended.first_offset is not None and self.scan.has_read(write.topic_partition, appended.first_offset):
                raise repeated_error(decision, write.topic_partition, appended.first_offset)
            if known is not None:
                await self._check(known, appended.offsets)
            await asks.Reach("driver.mid_decide", decision.micro_batch)
            late_ms = 0 if write.decide_by_ms is None else await asks.Now() - write.decide_by_ms
            if late_ms > 0:
                raise too_late_error(decision.micro_batch, late_ms)
        except EosKafkaError:
            await asks.EndDecision(write, commit=False)
            raise
        return await asks.EndDecision(write, commit=True)

    async def _check(self, known: Rank, offsets: Sequence[CommittedOffset]) -> None:
        """Raise if the pointer is not the known one, which then came from a broker that returns outdated responses.

        Ranks only grow, because each driver that decides knows the newest decision. A pointer that has expired, or that
        the coordinator has not yet applied, hides nothing that the known one did not show.
        """
        pointer = await self._newest_pointer(offsets)
        rank = None if pointer is None else pointer.rank
        if pointer is None and known == NO_DECISION:
            # A driver whose options have another prefix has another id, so neither fences the other.
            rank = await self.scan.elsewhere(self.prefix)
        if rank is not None and rank > known:
            raise outdated_error(self._query, self.scan.run, self._group, rank)

    async def _is_newest(self, decision: Decision) -> bool:
        newest = await self._look_up(decision, self.newest(decision.micro_batch))
        return newest is not None and (newest.run, newest.rank) == (decision.run, decision.rank)

    async def _end_late(self, decision: Decision, driver: DriverIdentity) -> None:
        """Abort a decision whose EndTxn was not answered in time, unless it has ended.

        Otherwise a delayed EndTxn could still commit it after the transactions it names have timed out. The abort names
        this driver's transaction: it is refused if the open transaction belongs to a newer driver.
        """
        found = await self._look_up(decision, describe_since(self._driver, driver.producer))
        if found is not None and found.state is TransactionState.ONGOING:
            await self._look_up(decision, asks.EndTransactions([driver.transaction], commit=False))

    async def _look_up(self, decision: Decision, ask: Awaitable[_Answer]) -> _Answer:
        try:
            return await ask
        except FencedError:
            raise
        except EosKafkaError as error:
            raise unclear_error(decision, error) from error

    async def _choose_place(self) -> TopicPartition:
        count = await asks.PartitionCount(self._topic)
        return TopicPartition(self._topic, decision_partition(self._query, count))

    async def _newest_pointer(self, offsets: Sequence[CommittedOffset]) -> Pointer | None:
        """Return the newest pointer among a group's offsets, or None if something else has replaced it.

        `kafka-consumer-groups --reset-offsets` replaces it, and may add offsets of other partitions that stay. New
        decisions have one place, so a pointer there is the newest one; without it only a scan can tell. A topic other
        than the one in the options is refused: both would be needed until the last decision in the old one is obsolete.
        """
        found = [(each, read_pointer(*each, f"group {self._group}")) for each in offsets]
        pointers = [pointer for _, pointer in found if pointer is not None]
        foreign = [each for each, pointer in found if pointer is None]
        newest = max(pointers, key=lambda pointer: pointer.rank, default=None)
        if newest is not None and newest.topic_partition.topic != self._topic:
            raise other_topic_error(self._query, self.scan.run, self._group, self._topic, newest.topic_partition.topic)
        for each in foreign:
            if each.topic_partition.topic != self._topic:
                raise foreign_offset_error(self._query, self._group, each, self._topic)
        if foreign and (self._place or await self._choose_place()) not in {each.topic_partition for each in pointers}:
            await asks.warn(
                f"group {self._group} has offsets that the sink did not commit, for example of "
                f"{foreign[0].topic_partition}; the decisions are searched in the decision topic"
            )
            return None
        return newest

    async def _stable_offsets(self, patience_ms: int) -> list[CommittedOffset]:
        try:
            return list(await asks.CommittedOffsets(self._group, wait_ms=patience_ms))
        except UnstableOffsetsError:
            await self._end_dead_driver()
        except OUTAGES as error:
            await asks.info(f"group {self._group}: retrying for longer: {error}")
        return list(await asks.CommittedOffsets(self._group, wait_ms=UNSTABLE_LIMIT_MS))

    async def _end_dead_driver(self) -> None:
        """Abort a decision that was written but not ended.

        The abort names the transaction exactly. It is refused if the driver is alive and ends the transaction first. If
        the abort is first, that driver sees its decision fail and nothing of the micro-batch is visible.
        """
        description = (await asks.DescribeTransactions([self._driver])).get(self._driver)
        if description is not None and description.state is TransactionState.ONGOING:
            self._ended = description.producer
            await asks.Reach("recovery.before_end_driver")
            if not await abort_described([description]):
                self._ended = None
