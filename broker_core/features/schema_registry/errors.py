"""The errors of the registry's REST API, with the codes and texts that clients of Confluent Schema Registry know."""


class RegistryError(Exception):
    """A refused request: its HTTP status, the code in its body, and the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status: the first three digits of the code."""
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchema(RegistryError):
    """A schema that cannot be parsed, or whose references cannot be resolved."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, message)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | str | None = None) -> RegistryError:
    """Return the error for an unknown id, or for a schema that is not registered under the subject."""
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")
