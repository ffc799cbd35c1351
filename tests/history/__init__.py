"""Judge histories of Kafka clients: what was sent, what was read, and whether both can be true of one log.

`format` is what a history looks like, `checker` the judge, `workload` and `__main__` make histories with real clients.
"""
