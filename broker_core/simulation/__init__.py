"""A deterministic simulation of the world around a broker, determined by a seed.

Owns: the order of events, virtual time, a network and a disk that fail, and the count of faults that occurred.
Uses: `broker` and the layers below it, the protocols of `ports`.
Never: uses a real clock, socket, file or source of randomness; the real twins of its parts are in `server`.
"""
