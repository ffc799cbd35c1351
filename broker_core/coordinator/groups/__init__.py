"""The group coordinator: membership and committed offsets of groups, stored in `__consumer_offsets`.

Owns: the partitions of that topic that this broker leads, and the protocol of each group.
Uses: `classic`, `consumer` and `offsets` below it for the rules of each.
Never: is imported by them; they use it only through the `Recorder` interface.
"""
