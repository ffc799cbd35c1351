"""The share coordinator, which keeps the state of share partitions in `__share_group_state` (KIP-932)."""
