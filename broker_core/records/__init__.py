"""Read and build Kafka's record batches (magic 2), the bytes that logs hold and clients exchange.

Owns: the batch header, its CRC-32C, offset assignment in place, records, control batches, and the compression codecs.
Asks: `errors` and `types` for words; crc32c and cramjam for the arithmetic.
Never: opens a file, knows a log, or decides whether a producer may append.
"""
