"""Kafka's messages from plain values."""

from typing import Any


def filled(form: Any, /, **fields: Any) -> Any:
    """Return a message; what is nested in it may be dicts: `filled(m.MetadataRequest, topics=[{"name": "t"}])`."""
    return form(**{name: _objects(form, name, value) for name, value in fields.items()})


def _objects(form: Any, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_objects(form, name, each) for each in value]
    return filled(form.fields[name].data_class, **value) if isinstance(value, dict) else value
