"""The decision whether partitions of a checkpoint are gone, with answers of brokers from a list."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS, PartitionMetadata, TopicMetadata
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.errors import AuthorizationError, DataLossError, OptionError
from spark_eos.options.source import stream_options
from spark_eos.source.doubted_partitions import DoubtedPartitions, JudgedPartitions
from spark_eos.source.offsets import SourceOffset
from tests.support.clocks import StandingClock

Answer = Mapping[str, TopicMetadata] | None

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=5), UUID(int=6)
KNOWN = SourceOffset({T0: 5, T1: 7}, {"t": OLD})


def topic(*partitions: int, topic_id: UUID | None = OLD, error: ErrorCode = ErrorCode.NONE) -> Answer:
    found = {partition: PartitionMetadata(partition, 1, 4, 0) for partition in partitions}
    return {"t": TopicMetadata("t", topic_id, False, error, found)}


HERE = topic(0, 1)
UNKNOWN = topic(topic_id=None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NO_LEADER = topic(topic_id=None, error=ErrorCode.LEADER_NOT_AVAILABLE)
REFUSED = topic(topic_id=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
FEWER = topic(0)
OTHER = topic(0, 1, topic_id=NEW)
EMPTY: Answer = {}
SILENT: Answer = None


class Brokers:
    """The answers of all brokers, round by round; the last round repeats."""

    def __init__(self, *rounds: Sequence[Answer]) -> None:
        self.rounds = list(rounds)
        self.clock = StandingClock()
        self.asked = 0

    def from_each_broker(self, topics: Collection[str]) -> Sequence[Answer]:
        self.asked += 1
        return self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]


class Doubts:
    """A query of topic `t`, and what it decides after an answer without its partitions."""

    def __init__(self, *rounds: Sequence[Answer], fail: bool = True, **options: str) -> None:
        self.brokers = Brokers(*rounds)
        self.clock = self.brokers.clock
        base = {"kafka.bootstrap.servers": "127.0.0.1:1", "failOnDataLoss": str(fail)} | (options or {"subscribe": "t"})
        self.doubts = DoubtedPartitions(self.brokers, stream_options(base))

    def judge(
        self, known: SourceOffset = KNOWN, places: Mapping[TopicPartition, PartitionPlace] | None = None
    ) -> JudgedPartitions:
        verdict = self.doubts.judge(known, places or {})
        self.doubts.report(known, verdict, ())
        return verdict


def test_known_partitions_cost_no_request() -> None:
    doubts = Doubts([])
    assert doubts.judge(places={T0: PartitionPlace(OLD), T1: PartitionPlace(OLD)}) == JudgedPartitions()
    assert doubts.judge(places={T0: PartitionPlace(None), T1: PartitionPlace(None)}) == JudgedPartitions()
    assert (
        doubts.judge(SourceOffset(KNOWN.offsets), {T0: PartitionPlace(NEW), T1: PartitionPlace(NEW)})
        == JudgedPartitions()
    )
    assert doubts.brokers.asked == 0


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("rounds", [
    [[HERE]],
    [[UNKNOWN], [HERE]],
    [[UNKNOWN], [UNKNOWN], [NO_LEADER], [EMPTY], [SILENT], [HERE]],
    [[REFUSED], [HERE]],
    [[FEWER], [HERE]],
    [[UNKNOWN, HERE, UNKNOWN]],
    [[REFUSED, SILENT, HERE]],
    [[OTHER, HERE], [HERE, HERE]],
], ids=str)  # fmt: skip
def test_partition_that_one_broker_names_goes_on(rounds: list[list[Answer]], fail: bool) -> None:
    verdict = Doubts(*rounds, fail=fail).judge()
    assert verdict == JudgedPartitions(found={T0: PartitionPlace(OLD, 1, 4), T1: PartitionPlace(OLD, 1, 4)})


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("answers", [
    [SILENT], [EMPTY], [NO_LEADER], [UNKNOWN, SILENT], [UNKNOWN, EMPTY], [UNKNOWN, NO_LEADER], [UNKNOWN, OTHER], [],
], ids=str)  # fmt: skip
def test_partition_that_brokers_disagree_on_keeps_its_offset(answers: list[Answer], fail: bool) -> None:
    doubts = Doubts(answers, fail=fail)
    assert doubts.judge() == JudgedPartitions(kept={T0, T1})
    asked = doubts.brokers.asked
    # Other topics are read in the meantime, without a wait in each trigger.
    assert doubts.judge() == JudgedPartitions(kept={T0, T1})
    assert doubts.brokers.asked == asked
    doubts.clock.seconds += 60
    doubts.brokers.rounds = [[HERE]]
    assert doubts.judge().found.keys() == {T0, T1}


def test_topic_with_the_same_id_never_has_fewer_partitions() -> None:
    doubts = Doubts([FEWER, FEWER])
    verdict = doubts.judge()
    assert (verdict.kept, verdict.found.keys()) == ({T1}, {T0})
    without_ids = topic(0, topic_id=None)
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t-1 \(read up to offset 7\)"):
        Doubts([without_ids, without_ids]).judge()


def test_partition_that_no_broker_knows_is_gone_after_the_grace() -> None:
    doubts = Doubts([UNKNOWN, UNKNOWN])
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t-0 \(read up to offset 5\), t-1 .*asked again"):
        doubts.judge()
    assert doubts.brokers.asked > 2
    assert MISSING_TOPIC_GRACE_SECONDS / 2 < doubts.clock.seconds <= MISSING_TOPIC_GRACE_SECONDS


def test_named_partition_that_is_gone_keeps_its_offset_in_case_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    doubts = Doubts([UNKNOWN], fail=False)
    for _ in range(2):
        assert doubts.judge() == JudgedPartitions(gone={T0, T1}, kept={T0, T1})
    assert caplog.text.count("PARTITIONS_DELETED") == 1
    assert doubts.judge(places={T0: PartitionPlace(OLD), T1: PartitionPlace(OLD)}) == JudgedPartitions()
    doubts.brokers.rounds = [[OTHER]]
    assert doubts.judge(places={T0: PartitionPlace(NEW), T1: PartitionPlace(NEW)}) == JudgedPartitions(
        recreated={T0, T1}
    )


def test_partition_of_a_pattern_that_is_gone_leaves_the_checkpoint() -> None:
    doubts = Doubts([UNKNOWN], fail=False, subscribePattern="t.*")
    assert doubts.judge() == JudgedPartitions(gone={T0, T1}, dropped={T0, T1})


def test_partition_without_a_topic_id_that_is_gone_leaves_the_checkpoint() -> None:
    """If a topic comes back, nothing shows that its first records were read."""
    assert Doubts([UNKNOWN], fail=False).judge(SourceOffset(KNOWN.offsets)) == JudgedPartitions(
        gone={T0, T1}, dropped={T0, T1}
    )


def test_topics_are_quiet_independently() -> None:
    """A second doubt does not make the first one wait for its grace in each trigger."""
    doubts = Doubts([SILENT], fail=False)
    assert doubts.judge(places={T1: PartitionPlace(OLD)}).kept == {T0}
    asked = doubts.brokers.asked
    assert doubts.judge().kept == {T0, T1}
    assert doubts.brokers.asked > asked
    asked = doubts.brokers.asked
    assert doubts.judge().kept == {T0, T1}
    assert doubts.brokers.asked == asked


def test_topic_that_all_brokers_name_with_another_id_is_another() -> None:
    new = {T0: PartitionPlace(NEW), T1: PartitionPlace(NEW)}
    with pytest.raises(DataLossError, match=rf"TOPIC_RECREATED.*t-0 was read up to offset 5 of .* id {OLD}"):
        Doubts([OTHER, OTHER]).judge(places=new)
    lenient = Doubts([OTHER, OTHER], fail=False)
    assert lenient.judge(places=new) == JudgedPartitions(recreated={T0, T1})
    assert lenient.clock.seconds == 0, "a topic id is a proof"
    assert Doubts([OTHER, UNKNOWN], fail=False).judge(places=new) == JudgedPartitions(kept={T0, T1})


def test_new_topic_of_which_nothing_was_read_is_no_loss() -> None:
    known = SourceOffset({T0: 0}, {"t": OLD})
    assert Doubts([OTHER]).judge(known, {T0: PartitionPlace(NEW)}) == JudgedPartitions(recreated={T0})


def test_right_that_stays_away_is_named() -> None:
    with pytest.raises(AuthorizationError, match="t: TOPIC_AUTHORIZATION_FAILED"):
        Doubts([REFUSED, SILENT]).judge()


@pytest.mark.parametrize("options", [{"subscribe": "u"}, {"subscribePattern": "u.*"}, {"assign": '{"t":[2]}'}], ids=str)
def test_options_that_leave_out_a_partition_are_named(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    [name] = options
    with pytest.raises(OptionError, match=rf"Option '{name}' leaves out .*t-0 \(read up to offset 5\)") as caught:
        Doubts([], **options).judge()
    assert "Nothing is known to be deleted" in str(caught.value)
    assert "their later records are never read" in str(caught.value)
    lenient = Doubts([], fail=False, **options)
    assert lenient.judge() == JudgedPartitions(left_out={T0, T1}, dropped={T0, T1})
    assert "no longer read: t-0" in caplog.text
