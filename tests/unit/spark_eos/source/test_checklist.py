"""The checks of the suites of Spark 4.2's own Kafka source: the test here for each, or the reason for its absence.

Tests are named by their files below `tests`. The tests of the sink cover the checks of Spark's sink suite.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[3]

CHECKLIST: dict[str, tuple[str, ...]] = {
    # KafkaMicroBatchSourceSuite
    "Trigger.AvailableNow, 15 records by 5": (
        "spark/test_source_stream::test_available_now_with_limits_uses_several_micro_batches",
        "integration/spark_eos/source/test_available_now::test_records_after_the_start_are_left_to_the_next_run"),
    "AvailableNow and topics that change": (
        "integration/spark_eos/source/test_available_now::test_invalid_micro_batch_end_is_refused",
        "integration/spark_eos/source/test_available_now::test_topic_deleted_during_the_query_stops_it",
        "integration/spark_eos/source/test_available_now::test_log_truncated_below_the_recorded_end_stops_the_query"),
    "uncommitted micro-batch again under AvailableNow (SPARK-53560)": (
        "integration/spark_eos/source/test_available_now::"
        "test_micro_batch_from_the_checkpoint_is_not_checked_against_the_new_ends",),
    "(de)serialization of initial offsets": (
        "spark/test_source_stream::test_available_now_reads_existing_records_and_continues_after_restart",),
    "rate limits beyond a long (SPARK-26718)": (
        "unit/spark_eos/source/test_offsets::test_limits_beyond_a_long_are_accepted",),
    "maxOffsetsPerTrigger over 101, 11 and 1 records": (
        "unit/spark_eos/source/test_offsets::test_rate_limit_matches_spark_example_101_11_1_limit_10",
        "spark/test_source_beside_sparks::test_micro_batches_match_spark_kafka_source"),
    "Trigger.Once ignores limits": ("spark/test_source_stream::test_once_trigger_ignores_limits",),
    "minOffsetsPerTrigger and maxTriggerDelay": (
        "unit/spark_eos/source/test_offsets::test_min_offsets_waits_until_max_trigger_delay",
        "integration/spark_eos/source/test_stream_reader::test_min_offsets_is_waited_for",
        "unit/spark_eos/source/test_offsets::test_all_available_takes_precedence_over_the_options"),
    "composite limits": (
        "unit/spark_eos/source/test_offsets::test_min_and_max_offsets_apply_together",
        "integration/spark_eos/source/test_stream_reader::test_min_offsets_is_waited_for"),
    "numInputRows counts delivered rows": (
        "spark/test_source_stream::test_continuous_query_reads_new_records_and_reports_the_latest_offset",
        "spark/test_source_checklist::test_dataframe_used_twice_yields_its_rows_twice"),
    "pattern with topic deletions": (
        "integration/spark_eos/source/test_stream_reader::test_topics_are_created_deleted_and_extended_while_reading",
        "integration/spark_eos/source/test_changed_topics::test_deleted_topic_is_named_and_a_restart_finds_it_again"),
    "pattern of which no topic is left (SPARK-41375)": (
        "unit/spark_eos/source/test_doubted_partitions::test_partition_of_a_pattern_that_is_gone_leaves_the_checkpoint",
        "unit/spark_eos/source/test_doubted_partitions::test_partition_that_brokers_disagree_on_keeps_its_offset"),
    "topic recreated between micro-batches": (
        "integration/spark_eos/source/test_changed_topics::test_topic_created_again_is_read_from_its_first_record",),
    "initial offset file: extra byte, 2.1.0, future version": (
        "Not applicable: the Python data source API keeps no such file; Spark logs the first offset itself.",
        "spark/test_source_beside_sparks::test_checkpoint_is_interchangeable_with_spark_kafka_source"),
    "watermark on the timestamp column": ("spark/test_source_checklist::test_watermark_on_the_timestamp_works",),
    "topic deleted while a job runs": (
        "spark/test_source_checklist::test_topic_deleted_while_the_query_runs_is_reported",),
    "two sources, one without new data (SPARK-22956)": (
        "spark/test_source_checklist::test_two_sources_with_one_idle_make_progress",),
    "group.id prefix and override": (
        "unit/spark_eos/options/test_source_options::test_commit_group_option_is_parsed",
        "spark/test_source_stream::test_consumer_group_shows_query_progress"),
    "self-join: one offset in the log": (
        "Not applicable: Spark's planner makes two sources of a frame used twice, of its own rate source too (4.3).",
        "spark/test_source_checklist::test_dataframe_used_twice_yields_its_rows_twice"),
    "read_committed, four corner cases by 3": (
        "unit/spark_eos/client/test_aborted_filter::test_filter_shows_only_committed_records_for_any_split_of_the_log",),
    "read_uncommitted": (
        "integration/spark_eos/source/test_stream_reader::test_uncommitted_records_are_read_in_micro_batches_of_three_offsets",),
    "prefetched data beyond the micro-batch (SPARK-25495)": (
        "Nothing is kept from one task to the next, so nothing can be reused.",
        "integration/spark_eos/source/test_fetch::test_small_fetches_of_any_range_yield_the_same_rows_as_librdkafka"),
    "null keys and values (SPARK-27494)": (
        "spark/test_source_batch::test_all_columns_are_read",
        "spark/test_source_stream::test_nulls_headers_and_topics_by_pattern_are_read"),
    "record time beyond Spark's timestamp (SPARK-56243)": (
        "unit/spark_eos/source/test_record_times::test_a_time_beyond_sparks_timestamp_is_an_error_that_names_the_record",
        "spark/test_source_beside_sparks::test_time_beyond_sparks_timestamp_is_refused_and_named"),
    "minPartitions (SPARK-30656), illegal values": (
        "spark/test_source_batch::test_min_partitions_creates_more_tasks_than_partitions",
        "unit/spark_eos/options/test_source_options::test_wrong_options_are_refused"),
    "maxRecordsPerPartition": ("unit/spark_eos/source/test_offsets::test_max_records_applies_before_min_partitions",),
    "V1 or V2 source": ("Not applicable: a Python data source is always V2.",),
    "includeHeaders and a checkpoint of Spark 2.4": (
        "Not applicable: no checkpoint contains the schema of the source.",
        "spark/test_source_beside_sparks::test_checkpoint_is_interchangeable_with_spark_kafka_source"),
    "custom metrics": (
        "The Python data source API has no source metrics: offsets behind the latest follow from latestOffset.",
        "integration/spark_eos/source/test_stream_reader::test_latest_offset_is_reported_regardless_of_limits"),
    # KafkaSourceSuiteBase
    "a clean stop": ("spark/test_source_checklist::test_topic_deleted_while_the_query_runs_is_reported",),
    "assign, subscribe, pattern x five ways to start, restarts, added partitions": (
        "integration/spark_eos/source/test_stream_reader::test_every_kind_of_subscription_and_start_is_read",),
    "no record as young as the starting time": (
        "unit/spark_eos/source/test_planner::test_timestamp_after_the_last_record_fails_or_uses_the_end",),
    "bad options, unsupported Kafka settings, any case": (
        "unit/spark_eos/options/test_source_options::test_wrong_options_are_refused",
        "spark/test_source_beside_sparks::test_refusals_match_spark_kafka_source"),
    "column types, headers": (
        "spark/test_source_batch::test_schema_matches_spark", "spark/test_source_batch::test_all_columns_are_read"),
    "KafkaSourceStressSuite": (
        "integration/spark_eos/source/test_stream_reader::test_topics_are_created_deleted_and_extended_while_reading",),
    # KafkaOffsetReaderSuite
    "look-ups again after failures that pass (SPARK-55561)": (
        "unit/spark_eos/source/test_outages::test_outage_of_minutes_is_waited_out",
        "unit/spark_eos/source/test_planner::test_topic_that_no_answer_has_named_yet_is_looked_up_again"),
    # KafkaRelationSuite
    "earliest to latest, defaults, explicit offsets, headers": (
        "unit/spark_eos/source/test_planner::test_given_offsets_resolve_earliest_and_latest",
        "spark/test_source_beside_sparks::test_rows_match_spark_kafka_source"),
    "batch ends are bound at every run": (
        "Spark asks a Python data source for partitions once for each load().",
        "spark/test_source_batch::test_ends_are_resolved_at_the_first_run"),
    "timestamps, alone and together, global and by partition; precedence": (
        "unit/spark_eos/source/test_planner::test_starting_timestamps_are_resolved",
        "spark/test_source_beside_sparks::test_rows_match_spark_kafka_source",
        "unit/spark_eos/options/test_source_options::test_starting_timestamp_takes_precedence_over_timestamps_and_offsets",
        "unit/spark_eos/options/test_source_options::test_ending_options_follow_the_same_precedence"),
    "no match for start fails, for end is latest": (
        "unit/spark_eos/source/test_planner::test_timestamp_after_the_last_record_fails_or_uses_the_end",),
    "the same frame in a union with itself": ("spark/test_source_batch::test_ends_are_resolved_at_the_first_run",),
    "starting offsets bound after retention": (
        "spark/test_source_checklist::test_retention_between_planning_and_reading_is_reported",),
    "start and end of other partitions, start after the end": (
        "unit/spark_eos/source/test_planner::test_given_offsets_must_cover_exactly_the_partitions",
        "unit/spark_eos/options/test_source_options::test_wrong_batch_options_are_refused",
        "unit/spark_eos/source/test_planner::test_batch_that_starts_after_its_end_is_an_error_of_the_options"),
    "bad batch options": (
        "unit/spark_eos/options/test_source_options::test_wrong_batch_options_are_refused",),
    "read_committed and read_uncommitted in batches": (
        "unit/spark_eos/client/test_aborted_filter::test_filter_shows_only_committed_records_for_any_split_of_the_log",
        "integration/spark_eos/source/test_fetch::test_read_uncommitted_yields_all_records_and_no_markers"),
}  # fmt: skip


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_test_named_in_the_checklist_exists() -> None:
    names = [each for entries in CHECKLIST.values() for each in entries if " " not in each]
    for name in names:
        module, _, test = name.rpartition("::")
        assert test in names_in(TESTS / f"{module}.py"), name
