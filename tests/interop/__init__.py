"""Scenarios that drive `broker_core`, and Apache Kafka as control, with third-party Kafka clients.

`adapters/` has one small program for each client, `driver` starts them and talks to them, `fleet` says which clients
there are, `brokers` which brokers; the scenarios stand in the `test_*` files, written once for all clients.
`python -m tests.interop` runs them all and prints a table.
"""
