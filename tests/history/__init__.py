"""Histories of Kafka clients: the records sent and read, and whether one log can explain both.

`workload` and `__main__` make histories with real clients; `tests.support.history` has their format and the checker.
"""
