"""The quotas of clients (KIP-13, 124, 219, 546, 599, 612): limits on bytes, time, changes of topics and connections.

Owns: the APIs that describe and change quotas, their records in the cluster's metadata, and the measurements.

Uses: the places at which the core asks how long a client is throttled.

Never: delays a request itself; the core does that.
"""
