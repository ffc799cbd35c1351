"""Play the worlds a broker may find itself in, from a seed and without the real one.

Owns: the order of events, virtual time, a network and a disk that fail, and the count of how they did.
Asks: the broker that is played, the protocols of `ports`.
Never: touches a real clock, socket, file or source of chance; the twins of clock, network and disk are in `server`.
"""
