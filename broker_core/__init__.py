"""Be a Kafka broker in pure Python: transactions whole, embeddable in a test, able to run in a simulation.

Owns: the rooms below it, each with its label; `broker_core.embedded` is the door for tests.
Asks: kafka-python for messages, crc32c and cramjam for batches, the standard library.
Never: imports `spark_eos`, Spark, Arrow or numpy.
"""
