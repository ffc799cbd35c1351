"""The control port: an HTTP/JSON API over one `EmbeddedBroker`, for tests in other languages.

Owns: the addresses, the JSON forms of arguments and results, the ids of faults, outages and snapshots, and who may send
requests.

Uses: the public methods of `EmbeddedBroker`; each address calls one of them and has its name.

Never: decides about the broker itself, listens on another address than loopback unless that is chosen, or runs in the
thread of the broker.
"""
