"""The codec: it converts Arrow columns to Kafka record batches and back, without touching a row in Python.

Owns: vectorized varints, batch splitting, sealing, decoding, and Kafka's partitioner.

Uses: `broker_core.records` for the batch header and the compression codecs; numpy and pyarrow for the work.

Never: talks to a broker, knows a transaction, or loops over rows, except for a few rows or very large batches.
"""

import broker_core.records  # noqa: F401 - before any other import of crc32c
