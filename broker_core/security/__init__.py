"""Decide who may do what.

Owns: ACL rules and SASL server mechanisms, when they come; until then every client may do everything, in plaintext.
Asks: floor 0.
Never: sees a request's bytes.
"""
