"""The leaders' side of share groups (KIP-932): which records of a partition members have acquired, until they are done.

Owns: share partitions with their in-flight batches and acquisition locks, and share sessions.
Uses: the share coordinator, which persists the states; the partitions' logs.
Never: knows members and their assignments; those belong to the group coordinator.
"""
