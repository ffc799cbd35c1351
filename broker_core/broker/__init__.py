"""A cluster of brokers over one set of logs: from a decoded request to the answer that may leave.

Owns: the topic metadata, the open logs, waiting requests, request handlers, dispatch, and the order of sync and answer.
Asks: `wire`, `records`, `log`, `coordinator`, `security`; storage, chance and time from its caller.
Never: opens a socket or a file, reads a clock, or sends a response before the writes it confirms are durable.
"""
