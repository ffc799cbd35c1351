"""The broker core over TCP, on asyncio, with the system's clock, disk and randomness.

Owns: sockets, the event loop that drives the core, files.
Uses: `broker` and the layers below it.
Never: decides anything that Kafka's protocol defines.
"""
