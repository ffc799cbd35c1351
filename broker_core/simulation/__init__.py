"""Play the worlds a broker may find itself in, from a seed and without the real one.

Owns: storage that can lose what was never made durable; later the clock, the network and the faults.
Asks: the protocols of `ports`.
Never: touches a real clock, socket, file or source of chance; the twin of each file here is in `server`.
"""
