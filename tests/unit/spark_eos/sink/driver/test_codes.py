"""EndTxn with every error code, applied or not: no code by itself determines the outcome that the sink assumes."""

from collections.abc import Collection, Mapping

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import TopicError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision_writer import DecisionWriter
from spark_eos.sink.protocol.answers import Appended, DecisionWrite
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import committer_of, prepare, states

S = TransactionState
CODES = [*(code for code in ErrorCode if code is not ErrorCode.NONE), None]


class MisreportingCluster(MemoryCluster):
    """A cluster that answers the first end of each kind with a given code, whether or not it applies the end."""

    code: ErrorCode | None = None
    is_applied = False
    misreports = ""

    def end_transactions(
        self, opened: Collection[OpenTransaction], commit: bool, wait_ms: int | None = None
    ) -> Mapping[str, EndAnswer]:
        """Return the given code for one completion."""
        if self.misreports != "completion" or not commit:
            return super().end_transactions(opened, commit)
        self.misreports = ""
        if self.is_applied:
            super().end_transactions(opened, commit)
        return {each.transactional_id: EndAnswer(self.code) for each in opened}

    def write_decision(self, write: DecisionWrite) -> EndAnswer:
        """Return the given code for one decision; one that is not applied leaves no record, as after an abort."""
        if self.misreports != "decision":
            return super().write_decision(write)
        self.misreports = ""
        if self.is_applied:
            super().write_decision(write)
        elif self.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # Coordinators return this code for unknown ids only.
            del self.ids[write.transaction.transactional_id]
        return EndAnswer(self.code)


def misreporting(version: int, about: str, code: ErrorCode | None, is_applied: bool) -> MisreportingCluster:
    cluster = MisreportingCluster(version=version)
    cluster.misreports, cluster.code, cluster.is_applied = about, code, is_applied
    return cluster


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_applied", [False, True])
def test_no_completion_error_code_loses_or_duplicates_a_micro_batch(version: int, is_applied: bool) -> None:
    for code in CODES:
        cluster = misreporting(version, "completion", code, is_applied)
        committer_of(cluster).commit(prepare(cluster, 0), 0)
        assert states(cluster) == {S.COMPLETE_COMMIT}, code
        assert sum(cluster.outcomes.values()) == 2, code


@pytest.mark.parametrize("version", [1, 2])
def test_no_error_code_reverts_a_decision_that_was_made(version: int) -> None:
    for code in CODES:
        cluster = misreporting(version, "decision", code, is_applied=True)
        committer_of(cluster).commit(prepare(cluster, 0), 0)
        assert states(cluster) == {S.COMPLETE_COMMIT}, code


@pytest.mark.parametrize("version", [1, 2])
def test_no_error_code_confirms_a_decision_that_was_not_made(version: int) -> None:
    for code in CODES:
        cluster = misreporting(version, "decision", code, is_applied=False)
        committer_of(cluster).commit(prepare(cluster, 0), 0)
        assert cluster.calls.count("decide") == 1, f"{code}: decided by the second attempt only"
        assert states(cluster) == {S.COMPLETE_COMMIT}, code
        assert sum(cluster.outcomes.values()) == 2, code


def test_decision_that_finds_no_topic_names_it_as_such() -> None:
    """A job without a jobId reads no decision, so that its own is the first to find out."""

    class Writer(DecisionWriter):
        def start(self, *_: object) -> Appended:
            raise TopicError("Topic 'd' does not exist", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    cluster = KafkaCluster(KafkaClient(ClientOptions(("127.0.0.1:1",))), "d")
    cluster._decisions = Writer(cluster.client)
    with pytest.raises(
        TopicError, match="The decision topic 'd' does not exist.*nothing that this run prepared becomes"
    ):
        cluster.start_decision(
            DecisionWrite(OpenTransaction("i", ProducerIdentity(1, 1), 2), TopicPartition("d", 0), (), "g", None, 0, 0)
        )
