"""Histories of Kafka clients: what was sent, what was read, and whether one log can explain both.

`format` is what a history looks like, `checker` the judge, `workload` and `__main__` make histories with real clients.
"""
