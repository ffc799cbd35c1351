"""The consumer group protocol (KIP-848): members heartbeat, the coordinator assigns.

Owns: the states of consumer groups and their members, assignors, reconciliation, the records of a group.
Uses: a recorder to append those records; timers; which topics there are; `classic` for groups to replace.
Never: knows committed offsets.
"""
