"""The simulated surroundings of an embedded broker: a disk in memory that can lose power, and chance by a seed.

Uses: the protocols of `ports`.
Never: uses a real file or source of randomness; `server` contains the real counterparts. The network, clock and
scheduler of simulated worlds are only the tests' (`tests/support/simulated`).
"""
