"""A deterministic simulation of a broker's environment: a seed determines every event.

Owns: the order of events, virtual time, a network and a disk that fail, and the count of faults that occurred.
Never: uses a real clock, socket, file or source of randomness; `broker_core.server` has the real counterparts.
"""
