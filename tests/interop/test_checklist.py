"""What public test suites check of transactions from end to end: the clients that show it here, or why not.

An entry names tests of this folder, with all clients unless some are named, or tests elsewhere by their path. A
sentence says why a third-party client cannot show it. The suites are those of Apache Kafka (K), its system tests (T),
librdkafka (L, by number), franz-go's broker (F) and Redpanda (R), and issues by number.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.interop.fleet import FLEET
from tests.interop.limits import ANY, LIMITS

TESTS = Path(__file__).parents[1]
BY = " by "

CHECKLIST: dict[str, tuple[str, ...]] = {
    "K testBasicTransactions": (
        "test_visibility::test_read_committed_sees_committed_records_and_read_uncommitted_all_but_markers",
        "test_visibility::test_records_written_by_one_client_are_read_by_another",
        "test_transactions::test_records_are_committed_and_aborted_under_transaction_version_1"),
    "K testReadCommittedConsumerShouldNotSeeUndecidedData": (
        "test_visibility::test_read_committed_stops_at_the_first_of_two_open_transactions",),
    "K the same: seekToEnd and offsetsForTimes": (
        "test_visibility::test_end_offset_of_read_committed_is_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka",
        "test_visibility::test_timestamp_lookup_stops_at_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka"),
    "K testDelayedFetchIncludesAbortedTransaction, ReplicaManager testDelayedFetchIncludesAbortedTransactions": (
        "test_visibility::test_delayed_fetch_returns_the_outcome_of_an_open_transaction",),
    "K testSendOffsetsWithGroupMetadata, testSendOffsetsWithGroupId": (
        "test_copies::test_every_third_copy_is_aborted_and_every_input_is_copied_once",
        "test_copies::test_client_restarts_during_a_copy_and_every_input_is_copied_once_in_order"),
    "K testOffsetMetadataInSendOffsetsToTransaction": (
        "test_transactions::test_committed_offset_and_metadata_are_returned",
        "test_groups::test_committed_leader_epoch_is_returned by java, confluent, kafka_python"),
    "K testFencingOnCommit, OnSend, OnSendOffsets, OnAddPartitions": (
        "test_fencing::test_second_producer_fences_the_first",
        "test_fencing::test_one_client_fences_another",
        "test_transactions::test_second_producer_under_transaction_version_1_fences_the_first"),
    "K testFencingOnTransactionExpiration": ("test_fencing::test_timed_out_transaction_fences_its_producer",),
    "K testMultipleMarkersOneLeader": (
        "test_visibility::test_ten_thousand_of_eleven_thousand_records_in_20_partitions_are_aborted",),
    "K testConsecutivelyRunInitTransactions": (
        "test_transactions::test_id_is_initialized_once by java, confluent, kafka_python",),
    "K testBumpTransactionalEpochWithTV2Disabled, Enabled": (
        "test_transactions::test_later_transactions_commit_after_a_refused_record_and_an_abort",
        "test_transactions::test_later_transactions_commit_after_a_refused_record_under_transaction_version_1",
        "The broker decides how far the epoch moves, and no client reports it.",
        "conformance/test_coordinator_requests::test_transaction_is_described_in_each_state",
        "conformance/test_scenarios_coordinator::test_scenario_04_v2_end_repeated_with_the_old_epoch"),
    "K testFailureToFenceEpochWithTV1, TV2": (
        "test_fencing::test_fencing_that_cannot_be_recorded_bumps_the_epoch_once",),
    "K testEmptyAbortAfterCommit": (
        "test_transactions::test_empty_transaction_ends_before_and_after_another",
        "conformance/test_transactions_and_deletions::test_empty_abort_after_a_transaction"),
    "K testRecoveryFromEpochOverflow": (
        "test_epochs::test_timeout_at_the_last_epoch_leaves_no_open_transaction",
        "test_epochs::test_last_epoch_is_followed_by_a_new_producer_id"),
    "K testInitTransactionTimeout": (
        "test_bounces::test_init_times_out_while_the_broker_is_down_and_can_be_resumed"
        " by java, confluent, kafka_python",),
    "K testCommitTransactionTimeout, testAbortTransactionTimeout, testSendOffsetsTransactionTimeout": (
        "test_bounces::test_calls_time_out_while_the_broker_is_down_and_can_be_resumed by java, confluent",),
    "K Bounce testWithGroupId, testWithGroupMetadata": (
        "test_bounces::test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order",),
    "K Expiration testFatalErrorAfterInvalidProducerIdMapping(TV1, TV2)": (
        "test_expiry::test_expired_transactional_id_is_unusable_until_initialized_again",),
    "K Expiration testTransactionAfterProducerIdExpires(TV1, TV2)": (
        "test_expiry::test_partition_forgets_a_producer_its_coordinator_knows",),
    "K ProducerIdExpiration testTransactionAfterTransactionIdExpiresButProducerIdRemains": (
        "test_expiry::test_expired_transactional_id_is_unusable_until_initialized_again",),
    "K ProducerIdExpiration testProducerIdExpirationWithNoTransactions": (
        "test_expiry::test_partition_forgets_an_idempotent_producer_which_continues",),
    "K ProducerIdExpiration testDynamicProducerIdExpirationMs": (
        "broker_core refuses changes of its own settings while it runs: a test starts it with other settings.",
        "conformance/test_scenarios_reload::test_scenario_20_partition_expires_an_inactive_producer"),
    "K, F testTransactionalProducerSingleBrokerMaxInFlightOne": (
        "test_transactions::test_abort_is_followed_by_a_commit_with_one_request_in_flight"
        " by java, confluent, kafka_python, kafkajs",),
    "K ProducerIntegration testTransactionWithAndWithoutSend": (
        "test_transactions::test_empty_transaction_ends_before_and_after_another",),
    "K ProducerIntegration testTransactionWithInvalidSendAndEndTxnRequestSent": (
        "test_transactions::test_later_transactions_commit_after_a_refused_record_and_an_abort",),
    "K ProducerIntegration testTransactionWithSendOffset": (
        "test_transactions::test_transaction_with_only_offsets_ends",),
    "T test_transactions: hard and clean, broker and client, with group metadata and without, order": (
        "test_bounces::test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order",
        "test_copies::test_client_restarts_during_a_copy_and_every_input_is_copied_once_in_order",
        "One of its two factors does not exist here: all eight check the order within a partition."),
    "L 0103 basic, with compression": (
        "test_visibility::test_read_committed_sees_committed_records_and_read_uncommitted_all_but_markers",
        "test_visibility::test_compressed_records_are_committed_and_aborted"),
    "L 0103 consumer": ("test_copies::test_every_third_copy_is_aborted_and_every_input_is_copied_once",),
    "L 0103 fenced": ("test_fencing::test_second_producer_fences_the_first",),
    "L 0103 misuse": (
        "test_transactions::test_calls_in_the_wrong_order_are_refused_without_effect"
        " by java, confluent, kafka_python, aiokafka",),
    "L 0103 empty, with offsets and without": (
        "test_transactions::test_empty_transaction_ends_before_and_after_another",
        "test_transactions::test_transaction_with_only_offsets_ends"),
    "L 0103 fatal idempotence error": (
        "test_transactions::test_later_transactions_commit_after_a_refused_record_and_an_abort",
        "It needs a gap in the sequences, which kafka-python and aiokafka leave there by themselves.",
        "conformance/test_scenarios_partition::test_scenario_11_the_sequence_wraps_to_zero"),
    "L 0103 abort marker and leader epoch": (
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_copied_once",),
    "L 0103 watermarks by isolation": (
        "test_visibility::test_end_offset_of_read_committed_is_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka",),
    "L 0129 fetch of aborted messages": (
        "test_visibility::test_reader_advances_past_more_aborted_records_than_one_fetch_returns",),
    "F TestTxnEtl": (
        "test_copies::test_every_third_copy_is_aborted_and_every_input_is_copied_once",
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_copied_once"),
    "R rejoin_member_test": (
        "test_groups::test_offsets_of_a_replaced_member_are_refused_and_of_the_current_one_committed"
        " by java, confluent, kafka_python",),
    "R change_static_member_test": (
        "test_groups::test_offsets_of_a_replaced_member_are_refused_and_of_the_current_one_committed"
        " by java, confluent, kafka_python",
        "test_copies::test_killed_static_member_is_replaced_during_its_transaction"
        " by java, confluent, kafka_python, aiokafka"),
    "R check_pids_overflow_test": (
        "Redpanda's own limit on the number of producers that a broker remembers; Apache Kafka has none, only expiry.",
        "test_expiry::test_partition_forgets_a_producer_its_coordinator_knows",
        "unit/broker_core/coordinator/transactions/test_producer_ids::test_ids_are_consecutive_across_blocks"),
    "R check_progress_after_fencing_test": ("test_fencing::test_second_producer_fences_the_first",),
    "R delete_topic_with_active_txns_test": (
        "test_transactions::test_deleting_one_topic_of_a_transaction_does_not_block_the_commit_of_the_other",),
    "R graceful_leadership_transfer_test": (
        "test_moves::test_open_transaction_survives_a_move",
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_copied_once",
        "Apache Kafka is left out: it runs as one node here."),
    "R graceful_leadership_transfer_tx_coordinator_test": ("test_moves::test_open_transaction_survives_a_move",),
    "ydb#51053": (
        "test_transactions::test_partition_added_without_records_is_committed by kafka_python, aiokafka",
        "conformance/test_coordinator_requests::test_empty_commit_of_an_added_partition_completes"),
    "ydb#52731": (
        "test_transactions::test_immediately_following_transactions_lose_nothing",
        "test_transactions::"
        "test_next_transaction_waits_for_completion_of_the_previous_one_and_loses_nothing"),
    "starlight#79": (
        "test_transactions::test_client_may_commit_a_transaction_aborted_by_an_administrator",
        "conformance/test_transactions_and_deletions::test_client_may_end_a_transaction_aborted_by_an_administrator"),
}  # fmt: skip


@cache
def scenarios_in(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def clients_of(test: str) -> set[str]:
    """Return the clients with which a test of this folder runs, in any variant."""
    return {
        name
        for name in FLEET
        if not any(
            limit.client == name and limit.is_skipped and limit.parameter is ANY and test.startswith(limit.scenario)
            for limit in LIMITS
        )
    }


@pytest.mark.parametrize("line", CHECKLIST)
def test_every_checklist_line_names_existing_tests_or_a_reason(line: str):
    assert CHECKLIST[line]
    for entry in CHECKLIST[line]:
        name, _, clients = entry.partition(BY)
        module, found, test = name.partition("::")
        if not found:
            assert entry.endswith("."), f"neither a test nor a sentence: {entry}"
            continue
        is_ours = "/" not in module
        path = (TESTS / "interop" if is_ours else TESTS) / f"{module}.py"
        assert test in scenarios_in(path), name
        if is_ours:
            assert clients_of(test) == set(clients.split(", ") if clients else FLEET), name


def test_every_scenario_of_this_directory_is_in_the_checklist():
    named = {entry.partition(BY)[0] for entries in CHECKLIST.values() for entry in entries}
    here = Path(__file__)
    ours = {
        f"{path.stem}::{test}" for path in here.parent.glob("test_*.py") if path != here for test in scenarios_in(path)
    }
    assert ours <= named


def test_every_limit_belongs_to_an_existing_scenario():
    ours = {test for path in Path(__file__).parent.glob("test_*.py") for test in scenarios_in(path)}
    for limit in LIMITS:
        assert any(test.startswith(limit.scenario) for test in ours), limit
        assert limit.client in FLEET, limit
