"""Seeded simulations: the broker core under faults, clients of every kind, and checks of what they saw."""
