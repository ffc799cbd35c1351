"""A cluster of brokers that share one set of logs: the way from a decoded request to its response.

Owns: topic metadata, open logs, waiting requests, request handlers, dispatch, and the order of sync and response.
Uses: `wire`, `records`, `log`, `coordinator`, `security`; its caller passes storage, randomness and time.
Never: opens a socket or a file, reads a clock, or sends a response before the writes it confirms are durable.
"""
