"""The classic group protocol: members join, the leader assigns, all sync (JoinGroup to LeaveGroup).

Owns: the states of classic groups and their tables, membership, rebalances, the record of a completed generation.
Uses: a recorder to append that record; timers; its caller for the time.
Never: uses consumer groups or committed offsets.
"""
