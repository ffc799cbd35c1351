"""Share groups (KIP-932): members share the records of partitions; the coordinator assigns partitions to members.

Owns: the states of share groups and their members, the assignor, and the records of a group.
Uses: a recorder to append those records; timers; the list of topics; `consumer` for partitions by topic id.
Never: knows records or their acknowledgments; those belong to the leaders of partitions.
"""
