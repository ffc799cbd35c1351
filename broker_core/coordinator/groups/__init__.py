"""The group coordinator: membership and committed offsets of groups, kept in `__consumer_offsets`.

Owns: the partitions of that topic that are led here, and which protocol a group follows.
Asks: `classic`, `consumer` and `offsets` below it for the rules of each.
Never: is imported by them; they know no more of it than a recorder.
"""
