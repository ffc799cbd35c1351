"""Authentication and authorization.

Owns: principals, SASL server mechanisms, names in certificates, and ACL rules.
Uses: `config`, `errors`, `ports`; `scramp` for SCRAM, `asn1crypto` for the names in certificates.
Never: parses requests, reads a clock, or keeps a client's password after checking it.
"""
