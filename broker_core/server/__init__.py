"""Run the core in the real world: TCP, the system's clock, its disk and its randomness.

Owns: sockets, the event loop that drives the core, files.
Asks: `broker`, and the floors below it.
Never: decides anything that Kafka's protocol speaks of.
"""
