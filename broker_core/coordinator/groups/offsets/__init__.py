"""Committed offsets: commits inside and outside of transactions, fetches, deletion and expiration.

Owns: the store of committed and pending offsets, their record format and their retention.
Uses: a recorder to append records; the groups of both protocols to check who may commit.
Never: verifies a transaction; the broker has verified it before the call.
"""
