"""Brokers, topics, queries and test doubles for source, sink and client."""
