"""Scenarios that drive `broker_core`, and Apache Kafka as control, with third-party Kafka clients.

`adapters/` has one small program for each client, `driver` starts and controls them, `fleet` lists the clients,
`brokers` the brokers. The scenarios are in the `test_*` files, written once for all clients. `python -m tests.interop`
runs them all and prints a table.
"""
