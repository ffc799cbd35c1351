"""Delegation tokens (KIP-48, KIP-373): a login that a client creates for others, and that expires.

Owns: the APIs, the tokens in the cluster's metadata, their expiration, and the login with one.

Uses: the cluster's metadata; SCRAM, with which clients log in.

Never: stores a token's HMAC, which is its password.
"""
