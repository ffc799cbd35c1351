"""The partitions of a checkpoint that an answer does not name, or names with another topic id.

No single answer proves an absence: a broker can lag behind the controller, a right can be taken away and given back. So
all brokers have to say it, for as long as the sink waits for a missing topic, before a partition is gone. A partition
that is only in doubt keeps its offset and is not read for that micro-batch. A topic
id is never used twice, so another id at all brokers is a proof without a wait.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_core.types import TopicPartition
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace, Word, described, places_of, word_of
from spark_eos.errors import OptionError
from spark_eos.options.positions import Assign, Subscribe, SubscribePattern, Subscription
from spark_eos.options.source import SourceOptions
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.offsets import SourceOffset

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5
# Brokers that do not agree are asked again after this time, so that other topics are read meanwhile.
_QUIET_SECONDS: Final = 10.0


@dataclass
class JudgedPartitions:
    """What became of the doubted partitions.

    Those in `kept` keep their offset: brokers do not agree on them yet, or they are gone but were named by the user and
    have a topic id. Those in `dropped` leave the checkpoint: they are gone, or the options do not include them.
    """

    found: dict[TopicPartition, PartitionPlace] = field(default_factory=dict)
    recreated: set[TopicPartition] = field(default_factory=set)
    gone: set[TopicPartition] = field(default_factory=set)
    left_out: set[TopicPartition] = field(default_factory=set)
    dropped: set[TopicPartition] = field(default_factory=set)
    kept: set[TopicPartition] = field(default_factory=set)


class DoubtedPartitions:
    """The decision, under `failOnDataLoss`, which partitions of a checkpoint are gone and which topics are others."""

    def __init__(self, lookup: OffsetLookup, options: SourceOptions) -> None:
        self._lookup = lookup
        self._subscription = options.subscription
        self._losses = DataLossPolicy(options.fail_on_data_loss)
        self._clock = lookup.clock
        self._gone: set[TopicPartition] = set()
        self._quiet_until: dict[TopicPartition, float] = {}
        self._reported: set[str] = set()

    def judge(self, known: SourceOffset, places: Mapping[TopicPartition, PartitionPlace]) -> JudgedPartitions:
        """Decide about the partitions of a checkpoint that `places` lacks; sends no request if there are none."""
        doubted = {
            tp
            for tp in known.offsets
            if (place := places.get(tp)) is None or known.is_other_topic(tp.topic, place.topic_id)
        }
        self._gone = {tp for tp in self._gone if tp in known.offsets and tp not in places}
        verdict = JudgedPartitions()
        if not doubted:
            self._quiet_until.clear()
            return verdict
        verdict.left_out = {tp for tp in doubted if not includes(self._subscription, tp)}
        now = self._clock.monotonic()
        asked = {tp for tp in doubted - verdict.left_out - self._gone if self._quiet_until.get(tp, now) <= now}
        if asked:
            gone = self._ask(asked, known, verdict)
            self._gone |= gone
            self._quiet(asked - gone - verdict.recreated - verdict.found.keys())
        verdict.gone = set(self._gone)
        # Of a pattern, topics come and go. Topics that the user named are few, and may come back as they were. Without
        # an id nothing would show that: a topic that comes back is then read from its first record.
        is_pattern = isinstance(self._subscription, SubscribePattern)
        verdict.dropped = verdict.left_out | {
            tp for tp in verdict.gone if is_pattern or tp.topic not in known.topic_ids
        }
        verdict.kept = doubted - verdict.recreated - verdict.found.keys() - verdict.dropped
        return verdict

    def _ask(self, asked: set[TopicPartition], known: SourceOffset, verdict: JudgedPartitions) -> set[TopicPartition]:
        """Ask all brokers until they agree, or the grace is over; return the partitions that are gone."""
        until = self._clock.monotonic() + MISSING_TOPIC_GRACE_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        undecided = set(asked)
        while True:
            answers = self._lookup.from_each_broker(sorted({tp.topic for tp in undecided}))
            absent = set()
            for tp in sorted(undecided):
                words = [word_of(answer, tp, known.topic_ids.get(tp.topic)) for answer in answers]
                if Word.HERE in words:
                    said = answers[words.index(Word.HERE)] or {}
                    verdict.found[tp] = places_of([said[tp.topic]])[tp]
                elif set(words) == {Word.OTHER} and len({each[tp.topic].topic_id for each in answers if each}) == 1:
                    verdict.recreated.add(tp)
                elif set(words) == {Word.ABSENT}:
                    absent.add(tp)
            undecided -= verdict.recreated | verdict.found.keys()
            if not undecided or self._clock.monotonic() + pause > until:
                break
            self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        topics = sorted({tp.topic for tp in undecided - absent})
        for answer in answers:
            # A topic may be refused because the principal may no longer describe it.
            described(answer[name] for name in topics if answer and name in answer)
        return absent

    def report(self, known: SourceOffset, verdict: JudgedPartitions, fixed: Collection[TopicPartition]) -> None:
        """Report what is lost, except partitions that Trigger.AvailableNow has `fixed`: their check follows."""
        if verdict.left_out:
            self.report_not_subscribed(known.offsets, verdict.left_out)
        # A topic of which nothing was read has nothing to lose.
        read = sorted(tp for tp in verdict.recreated if known.offsets[tp] > 0)
        if read:
            details = "; ".join(
                f"{tp} was read up to offset {known.offsets[tp]} of the topic with id {known.topic_ids[tp.topic]}"
                for tp in read
            )
            self._report_once(DataLoss.TOPIC_RECREATED, details)
        gone = sorted(verdict.gone.difference(fixed))
        if gone:
            details = ", ".join(f"{tp} (read up to offset {known.offsets[tp]})" for tp in gone)
            self._report_once(DataLoss.PARTITIONS_DELETED, f"{details}; all brokers were asked, and asked again")

    def _report_once(self, loss: DataLoss, details: str) -> None:
        if details not in self._reported:
            self._losses.report(loss, details)
            self._reported.add(details)

    def report_not_subscribed(self, known: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> None:
        """Refuse options that leave out partitions of the checkpoint, or warn if the user has chosen to drop them."""
        left_out = ", ".join(f"{tp} (read up to offset {known[tp]})" for tp in sorted(partitions))
        option = _option(self._subscription)
        if self._losses.fail:
            raise OptionError(
                f"Option '{option}' leaves out partitions that this checkpoint has read: {left_out}",
                checked="The offsets in the checkpoint against the option. Nothing is known to be deleted",
                remedy=f"To read on, include them in option '{option}' again. To read other topics in their place, "
                "use a new checkpoint. To give them up for good, set failOnDataLoss to false: their later records are "
                "never read, and if they are included again one day, they are read again from the first record",
            )
        if left_out not in self._reported:
            self._reported.add(left_out)
            logger.warning(
                "Option '%s' leaves out partitions that this checkpoint has read; they are no longer read: %s",
                option, left_out,
            )  # fmt: skip

    def _quiet(self, unsure: set[TopicPartition]) -> None:
        if unsure:
            logger.warning(
                "The brokers do not agree on %s, or not all of them respond; nothing is read from there until they do, "
                "and no record is lost",
                ", ".join(map(str, sorted(unsure))),
            )
        self._quiet_until |= dict.fromkeys(unsure, self._clock.monotonic() + _QUIET_SECONDS)


def includes(subscription: Subscription, topic_partition: TopicPartition) -> bool:
    if isinstance(subscription, Assign):
        return topic_partition in subscription.partitions
    if isinstance(subscription, Subscribe):
        return topic_partition.topic in subscription.topics
    return subscription.matches(topic_partition.topic)


def _option(subscription: Subscription) -> str:
    if isinstance(subscription, Assign):
        return "assign"
    return "subscribe" if isinstance(subscription, Subscribe) else "subscribePattern"
