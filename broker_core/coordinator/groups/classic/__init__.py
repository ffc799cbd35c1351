"""The classic group protocol: members join, one of them assigns, all sync (JoinGroup to LeaveGroup).

Owns: the states of classic groups and their tables, membership, rebalances, the record of a completed generation.
Asks: a recorder to append that record; timers; its caller for the time.
Never: knows consumer groups or committed offsets.
"""
