"""Brokers, topics, queries and doubles for the tests of source, sink and client."""
