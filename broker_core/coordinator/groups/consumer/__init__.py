"""The consumer group protocol (KIP-848): members heartbeat, the coordinator assigns.

Owns: the states of consumer groups and their members, assignors, reconciliation, and the records of a group.
Uses: a recorder to append those records; timers; the list of topics; `classic` for groups to replace.
Never: uses committed offsets.
"""
