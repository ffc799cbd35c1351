"""Play seeded worlds: the broker core under faults, clients of every kind, and the checks of what they saw."""
