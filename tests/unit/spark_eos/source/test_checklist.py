"""What the suites of Spark's own Kafka source check, line by line: where it is checked here, or why it is not.

Tests are named by their files below `tests`. What its sink suite checks is in the sink's tests.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[3]

CHECKLIST: dict[str, tuple[str, ...]] = {
    # KafkaMicroBatchSourceSuite
    "Trigger.AvailableNow, 15 records by 5": (
        "spark/test_source_stream::test_available_now_with_limits_takes_several_micro_batches",
        "integration/spark_eos/source/test_available_now::test_what_comes_after_the_start_is_for_the_next_run"),
    "AvailableNow and topics that change": (
        "integration/spark_eos/source/test_available_now::test_the_four_ways_to_be_wrong",
        "integration/spark_eos/source/test_available_now::test_a_topic_that_is_deleted_under_the_query_ends_it",
        "integration/spark_eos/source/test_available_now::test_a_log_that_becomes_shorter_than_at_the_start_ends_the_query"),
    "(de)serialization of initial offsets": (
        "spark/test_source_stream::test_available_now_reads_what_was_there_and_goes_on_after_a_restart",),
    "rate limits beyond a long (SPARK-26718)": ("unit/spark_eos/source/test_offsets::test_limits_beyond_a_long",),
    "maxOffsetsPerTrigger over 101, 11 and 1 records": (
        "unit/spark_eos/source/test_offsets::test_spark_example_101_11_1_limit_10",
        "spark/test_source_beside_sparks::test_the_same_micro_batches"),
    "Trigger.Once ignores limits": ("spark/test_source_stream::test_once_ignores_limits",),
    "minOffsetsPerTrigger and maxTriggerDelay": (
        "unit/spark_eos/source/test_offsets::test_too_little_waits_until_the_longest_delay",
        "integration/spark_eos/source/test_stream_reader::test_the_least_is_waited_for",
        "spark/test_source_stream::test_available_now_does_not_wait_for_the_least"),
    "composite limits": (
        "unit/spark_eos/source/test_offsets::test_both_limits_together",
        "integration/spark_eos/source/test_stream_reader::test_the_least_and_the_most"),
    "numInputRows counts delivered rows": (
        "spark/test_source_stream::test_a_continuous_query_shows_new_records_and_reports_the_latest_offset",
        "spark/test_source_checklist::test_a_frame_used_twice_gives_its_rows_twice"),
    "pattern with topic deletions": (
        "spark/test_source_stream::test_a_pattern_finds_topics_created_later_and_lets_deleted_ones_go",),
    "topic created anew between micro-batches": (
        "spark/test_source_stream::test_a_topic_created_anew_between_runs",
        "integration/spark_eos/source/test_leaders::test_a_running_query_notices_a_topic_that_was_created_anew"),
    "initial offset file: extra byte, 2.1.0, future version": (
        "Not ours: the Python data source API keeps no such file, Spark writes the first offset into its own log.",
        "spark/test_source_beside_sparks::test_one_checkpoint_serves_both"),
    "watermark on the timestamp column": ("spark/test_source_checklist::test_a_watermark_on_the_timestamp",),
    "topic deleted while a job runs": ("spark/test_source_checklist::test_a_topic_deleted_while_the_query_runs",),
    "two sources, one without new data (SPARK-22956)": (
        "spark/test_source_checklist::test_two_sources_of_which_one_has_nothing_new",),
    "group.id prefix and override": (
        "unit/spark_eos/options/test_source_options::test_the_group_that_lag_tools_look_at",
        "spark/test_source_group_commits::test_a_group_shows_how_far_a_query_is"),
    "self-join: one offset in the log": (
        "Not ours: Spark's planner makes two sources of a frame used twice, of its own rate source too (4.3).",
        "spark/test_source_checklist::test_a_frame_used_twice_gives_its_rows_twice"),
    "read_committed, four corner cases by 3": (
        "spark/test_source_stream::test_four_corner_cases_in_micro_batches_of_three_offsets",
        "integration/spark_eos/source/test_interleavings::test_the_source_sees_what_brute_force_sees"),
    "read_uncommitted": (
        "integration/spark_eos/source/test_stream_reader::test_uncommitted_records_in_micro_batches_of_three_offsets",),
    "prefetched data beyond the micro-batch (SPARK-25495)": (
        "Nothing is kept from one task to the next, so nothing can be reused.",
        "integration/spark_eos/source/test_fetch::test_small_answers_any_range_same_rows_as_the_judge"),
    "null keys and values (SPARK-27494)": (
        "spark/test_source_batch::test_all_columns",
        "spark/test_source_stream::test_nulls_headers_and_topics_by_pattern"),
    "minPartitions (SPARK-30656), illegal values": (
        "spark/test_source_batch::test_more_tasks_than_partitions", "spark/test_source_batch::test_bad_input_is_named"),
    "maxRecordsPerPartition": ("unit/spark_eos/source/test_offsets::test_max_records_first_then_min_partitions",),
    "V1 or V2 source": ("Not ours: a Python data source is always V2.",),
    "includeHeaders and a checkpoint of Spark 2.4": (
        "Not ours: the schema of the source is in no checkpoint.",
        "spark/test_source_beside_sparks::test_one_checkpoint_serves_both"),
    "custom metrics": (
        "The Python data source API has no source metrics: offsets behind the latest follow from latestOffset.",
        "integration/spark_eos/source/test_stream_reader::test_the_latest_offset_is_reported_whatever_the_limit"),
    # KafkaSourceSuiteBase
    "a clean stop": ("spark/test_source_checklist::test_a_topic_deleted_while_the_query_runs",),
    "assign, subscribe, pattern x five ways to start, restarts, added partitions": (
        "integration/spark_eos/source/test_stream_reader::test_every_way_to_subscribe_and_to_start",
        "spark/test_source_stream::test_added_partitions_are_read_from_their_start"),
    "no record as young as the starting time": (
        "integration/spark_eos/source/test_stream_reader::test_no_record_as_young_as_the_start",),
    "bad options, unsupported Kafka settings, any case": (
        "unit/spark_eos/options/test_source_options::test_wrong_options_are_refused",
        "spark/test_source_stream::test_bad_input_is_named",
        "spark/test_source_beside_sparks::test_the_same_refusals"),
    "column types, headers": (
        "spark/test_source_batch::test_schema_is_sparks", "spark/test_source_batch::test_all_columns"),
    "KafkaSourceStressSuite": ("integration/spark_eos/source/test_stream_reader::test_topics_come_and_go_and_grow",),
    # KafkaRelationSuite
    "earliest to latest, defaults, explicit offsets, headers": (
        "spark/test_source_batch::test_starting_and_ending_by_offset_and_time",
        "spark/test_source_beside_sparks::test_the_same_rows"),
    "batch ends are bound at every run": (
        "Spark asks a Python data source for partitions once for each load().",
        "spark/test_source_batch::test_ends_are_looked_up_at_the_first_run"),
    "timestamps, alone and together, global and by partition; precedence": (
        "spark/test_source_batch::test_starting_and_ending_by_offset_and_time",
        "spark/test_source_beside_sparks::test_the_same_rows",
        "unit/spark_eos/options/test_source_options::test_one_time_beats_times_and_those_beat_offsets",
        "unit/spark_eos/options/test_source_options::test_the_same_precedence_at_the_end"),
    "no match for start fails, for end is latest": ("unit/spark_eos/source/test_planner::test_no_record_that_young",),
    "the same frame in a union with itself": ("spark/test_source_batch::test_ends_are_looked_up_at_the_first_run",),
    "starting offsets bound after retention": ("spark/test_source_checklist::test_retention_between_load_and_run",),
    "bad batch options": (
        "unit/spark_eos/options/test_source_options::test_wrong_batch_options",
        "spark/test_source_batch::test_bad_input_is_named"),
    "read_committed and read_uncommitted in batches": (
        "spark/test_source_batch::test_four_corner_cases_of_read_committed",
        "spark/test_source_batch::test_an_open_transaction_holds_back_what_follows"),
}  # fmt: skip


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_named_test_is_there() -> None:
    names = [each for entries in CHECKLIST.values() for each in entries if " " not in each]
    for name in names:
        module, _, test = name.rpartition("::")
        assert test in names_in(TESTS / f"{module}.py"), name
