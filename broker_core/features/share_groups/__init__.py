"""Share groups (KIP-932): members that share the records of partitions, and acknowledge them one by one.

Owns: the groups and their assignments, the share partitions in the memory of leaders, the share coordinator that keeps
their state, the APIs, and the metrics.

Uses: the group coordinator, whose partitions share groups belong to; the logs and the controller of a broker.

Never: commits offsets: a group's position is the state of its share partitions.
"""
