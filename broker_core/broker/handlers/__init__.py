"""The translation between Kafka's messages and what the layers below can do, one module for each area.

Owns: the order of checks of each API and the form of its answers and errors.
Asks: `broker`'s parts, `wire.messages`, the logs and coordinators.
Never: keeps state from one request to the next.
"""
