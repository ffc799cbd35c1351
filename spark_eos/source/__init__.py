"""The source: it plans ranges of committed records on the driver and reads them on executors.

Owns: offset maps, rate limits, the plan, which batches are visible, the rows for Spark, lag.

Uses: `client` for offsets and bytes, `codec` for columns, `broker_core.records` for batch headers.

Never: writes to Kafka, or plans past the last stable offset.
"""
