"""The driver's protocol: take over, verify, decide, complete, settle and sweep, as pure coroutines.

Owns: which requests a commit, an abort, a recovery and an operator's intervention make, in which order, and what
follows from each answer. Uses: the asks, decisions and names. Never: a connection, a clock, a thread or a log.
"""
