"""What public test suites check of transactions from end to end: with which clients it is shown here, or why not.

Named are tests of this folder, with all clients unless some are named; with a path, tests elsewhere, which are no
foreign client's. A sentence says why a client that was not written here cannot show it. The suites are those of
Apache Kafka (K), its system tests (T), librdkafka (L, by number), franz-go's broker (F) and Redpanda (R), and issues
by number.
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
        "test_visibility::test_committed_readers_see_committed_records_and_uncommitted_ones_all_but_markers",
        "test_visibility::test_what_one_client_writes_another_reads",
        "test_transactions::test_under_transaction_version_1_records_are_committed_and_aborted"),
    "K testReadCommittedConsumerShouldNotSeeUndecidedData": (
        "test_visibility::test_of_two_interleaved_producers_readers_stop_at_the_first_open_one",),
    "K the same: seekToEnd and offsetsForTimes": (
        "test_visibility::test_the_end_of_a_committed_reader_is_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka",
        "test_visibility::test_a_time_is_looked_up_below_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka"),
    "K testDelayedFetchIncludesAbortedTransaction, ReplicaManager testDelayedFetchIncludesAbortedTransactions": (
        "test_visibility::test_a_fetch_that_was_parked_while_a_transaction_was_open_learns_how_it_ended",),
    "K testSendOffsetsWithGroupMetadata, testSendOffsetsWithGroupId": (
        "test_copies::test_every_third_copy_is_aborted_and_every_input_is_in_the_output_once",
        "test_copies::test_the_client_is_bounced_during_a_copy_and_every_input_is_in_the_output_once_and_in_order"),
    "K testOffsetMetadataInSendOffsetsToTransaction": (
        "test_transactions::test_offset_and_metadata_come_back_as_they_were_committed",
        "test_groups::test_the_leader_epoch_comes_back_as_it_was_committed by java, confluent, kafka_python"),
    "K testFencingOnCommit, OnSend, OnSendOffsets, OnAddPartitions": (
        "test_fencing::test_a_second_producer_fences_the_first",
        "test_fencing::test_one_client_fences_another",
        "test_transactions::test_under_transaction_version_1_a_second_producer_fences_the_first"),
    "K testFencingOnTransactionExpiration": ("test_fencing::test_a_transaction_that_times_out_fences_its_producer",),
    "K testMultipleMarkersOneLeader": (
        "test_visibility::test_of_11000_records_in_20_partitions_10000_are_aborted",),
    "K testConsecutivelyRunInitTransactions": (
        "test_transactions::test_an_id_is_initialised_once by java, confluent, kafka_python",),
    "K testBumpTransactionalEpochWithTV2Disabled, Enabled": (
        "test_transactions::test_after_a_refused_record_and_an_abort_later_transactions_commit",
        "test_transactions::test_under_transaction_version_1_later_transactions_commit_after_a_refused_record",
        "By how much the epoch moves is the broker's business, which no client tells.",
        "kips/test_kip_890::test_an_older_end_keeps_the_epoch",
        "kips/test_kip_890::test_the_end_tells_the_next_epoch"),
    "K testFailureToFenceEpochWithTV1, TV2": (
        "test_fencing::test_fencing_that_cannot_be_recorded_moves_the_epoch_once_all_the_same",),
    "K testEmptyAbortAfterCommit": (
        "test_transactions::test_an_empty_transaction_is_aborted_right_after_a_commit",
        "conformance/test_transaction_corners::test_an_abort_of_nothing_after_a_transaction"),
    "K testRecoveryFromEpochOverflow": (
        "test_epochs::test_a_transaction_that_times_out_at_the_last_epoch_leaves_nothing_stuck",
        "test_epochs::test_after_the_last_epoch_comes_a_new_producer_id"),
    "K testInitTransactionTimeout": (
        "test_bounces::test_init_times_out_while_the_broker_is_down_and_is_taken_up_again"
        " by java, confluent, kafka_python",),
    "K testCommitTransactionTimeout, testAbortTransactionTimeout": (
        "test_bounces::test_calls_time_out_while_the_broker_is_down_and_are_taken_up_again by java, confluent",),
    "K testSendOffsetsTransactionTimeout": (
        "test_bounces::test_sending_offsets_times_out_while_the_broker_is_down_and_is_taken_up_again"
        " by java, confluent",),
    "K Bounce testWithGroupId, testWithGroupMetadata": (
        "test_bounces::test_the_broker_is_bounced_during_a_copy_and_every_input_is_in_the_output_once_and_in_order",),
    "K Expiration testFatalErrorAfterInvalidProducerIdMapping(TV1, TV2)": (
        "test_expiry::test_an_expired_transactional_id_is_of_no_use_until_it_is_taken_again",),
    "K Expiration testTransactionAfterProducerIdExpires(TV1, TV2)": (
        "test_expiry::test_a_partition_forgets_a_producer_that_its_coordinator_knows",),
    "K ProducerIdExpiration testTransactionAfterTransactionIdExpiresButProducerIdRemains": (
        "test_expiry::test_an_expired_transactional_id_is_of_no_use_until_it_is_taken_again",),
    "K ProducerIdExpiration testProducerIdExpirationWithNoTransactions": (
        "test_expiry::test_a_partition_forgets_an_idempotent_producer_which_goes_on",),
    "K ProducerIdExpiration testDynamicProducerIdExpirationMs": (
        "broker_core takes no change of its own settings while it runs, and says so: it is started with another.",
        "conformance/test_scenarios_reload::test_scenario_20_a_partition_forgets_a_silent_producer"),
    "K, F testTransactionalProducerSingleBrokerMaxInFlightOne": (
        "test_transactions::test_with_one_request_in_flight_an_abort_is_followed_by_a_commit"
        " by java, confluent, kafka_python, kafkajs",),
    "K ProducerIntegration testTransactionWithAndWithoutSend": (
        "test_transactions::test_an_empty_transaction_is_committed",
        "test_transactions::test_an_empty_transaction_is_aborted_right_after_a_commit"),
    "K ProducerIntegration testTransactionWithInvalidSendAndEndTxnRequestSent": (
        "test_transactions::test_after_a_refused_record_and_an_abort_later_transactions_commit",),
    "K ProducerIntegration testTransactionWithSendOffset": (
        "test_transactions::test_a_transaction_of_offsets_alone_ends",),
    "T test_transactions: hard and clean, broker and client, with group metadata and without, order": (
        "test_bounces::test_the_broker_is_bounced_during_a_copy_and_every_input_is_in_the_output_once_and_in_order",
        "test_copies::test_the_client_is_bounced_during_a_copy_and_every_input_is_in_the_output_once_and_in_order",
        "One of its two factors is no factor here: the order within a partition is looked at in all eight."),
    "L 0103 basic, with compression": (
        "test_visibility::test_committed_readers_see_committed_records_and_uncommitted_ones_all_but_markers",
        "test_visibility::test_compressed_records_are_committed_and_aborted"),
    "L 0103 consumer": ("test_copies::test_every_third_copy_is_aborted_and_every_input_is_in_the_output_once",),
    "L 0103 fenced": ("test_fencing::test_a_second_producer_fences_the_first",),
    "L 0103 misuse": (
        "test_transactions::test_calls_in_the_wrong_order_are_refused_and_harm_nothing"
        " by java, confluent, kafka_python, aiokafka",),
    "L 0103 empty, with offsets and without": (
        "test_transactions::test_an_empty_transaction_is_committed",
        "test_transactions::test_a_transaction_of_offsets_alone_ends"),
    "L 0103 fatal idempotence error": (
        "test_transactions::test_after_a_refused_record_and_an_abort_later_transactions_commit",
        "What it wants, a gap in the sequences, is what kafka-python and aiokafka leave there by themselves.",
        "kips/test_kip_98::test_a_lost_batch_is_noticed"),
    "L 0103 abort marker and leader epoch": (
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_in_the_output_once",),
    "L 0103 watermarks by isolation": (
        "test_visibility::test_the_end_of_a_committed_reader_is_the_last_stable_offset"
        " by java, confluent, kafka_python, aiokafka",),
    "L 0129 fetch of aborted messages": (
        "test_visibility::test_a_reader_gets_past_more_aborted_records_than_one_fetch_brings",),
    "F TestTxnEtl": (
        "test_copies::test_every_third_copy_is_aborted_and_every_input_is_in_the_output_once",
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_in_the_output_once"),
    "R rejoin_member_test": (
        "test_groups::test_offsets_of_a_former_self_are_refused_and_those_of_the_present_one_committed"
        " by java, confluent, kafka_python",),
    "R change_static_member_test": (
        "test_groups::test_offsets_of_a_former_self_are_refused_and_those_of_the_present_one_committed"
        " by java, confluent, kafka_python",
        "test_copies::test_a_static_member_that_was_killed_is_replaced_in_the_middle_of_its_transaction"
        " by java, confluent, kafka_python, aiokafka"),
    "R check_pids_overflow_test": (
        "Redpanda's own limit on the number of producers that a broker remembers; Apache Kafka has none, only expiry.",
        "test_expiry::test_a_partition_forgets_a_producer_that_its_coordinator_knows",
        "unit/broker_core/coordinator/transactions/test_producer_ids::test_ids_follow_each_other_over_blocks"),
    "R check_progress_after_fencing_test": ("test_fencing::test_a_second_producer_fences_the_first",),
    "R delete_topic_with_active_txns_test": (
        "test_transactions::test_deleting_one_topic_of_a_transaction_does_not_block_the_commit_of_the_other",),
    "R graceful_leadership_transfer_test": (
        "test_moves::test_an_open_transaction_outlives_a_move",
        "test_moves::test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_in_the_output_once",
        "Apache Kafka is not asked: it runs as one node here."),
    "R graceful_leadership_transfer_tx_coordinator_test": ("test_moves::test_an_open_transaction_outlives_a_move",),
    "ydb#51053": (
        "test_transactions::test_a_partition_that_was_only_added_is_committed by kafka_python, aiokafka",
        "conformance/test_coordinator_requests::test_an_empty_commit_of_an_added_partition_is_a_transaction"),
    "ydb#52731": (
        "test_transactions::test_transactions_that_follow_at_once_lose_nothing",
        "test_transactions::"
        "test_a_transaction_that_is_still_being_completed_holds_up_the_next_which_loses_nothing"),
    "starlight#79": (
        "test_transactions::test_what_an_administrator_aborted_its_client_may_still_commit",
        "conformance/test_transaction_corners::test_what_an_administrator_aborted_its_client_may_still_end"),
}  # fmt: skip


@cache
def scenarios_in(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def clients_of(test: str) -> set[str]:
    """Return the clients that a test of this folder is asked of, in whatever variant."""
    return {
        name
        for name in FLEET
        if not any(
            limit.client == name and limit.is_skipped and limit.parameter is ANY and test.startswith(limit.scenario)
            for limit in LIMITS
        )
    }


@pytest.mark.parametrize("line", CHECKLIST)
def test_every_line_is_shown_by_tests_that_are_there_or_it_is_said_why_not(line: str):
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


def test_every_scenario_of_this_folder_shows_a_line():
    named = {entry.partition(BY)[0] for entries in CHECKLIST.values() for entry in entries}
    here = Path(__file__)
    ours = {
        f"{path.stem}::{test}" for path in here.parent.glob("test_*.py") if path != here for test in scenarios_in(path)
    }
    assert ours <= named


def test_every_limit_is_of_a_scenario_that_is_there():
    ours = {test for path in Path(__file__).parent.glob("test_*.py") for test in scenarios_in(path)}
    for limit in LIMITS:
        assert any(test.startswith(limit.scenario) for test in ours), limit
        assert limit.client in FLEET, limit
