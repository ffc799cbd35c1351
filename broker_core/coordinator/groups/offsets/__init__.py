"""The values of committed offsets: requests and answers, the store of one partition, and the format of records.

Owns: the store of committed and pending offsets, and their record format.
Uses: nothing of the groups; `offset_commits` beside this package checks who may commit, and appends records.
Never: verifies a transaction; the broker has verified it before the call.
"""
