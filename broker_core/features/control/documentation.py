"""The page `/docs`: the API's own description as HTML that loads nothing and runs no script."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2430; --faint: #5b6678; --line: #d5dae2; --paper: #fff; --panel: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ee; --faint: #a3adbd; --line: #384250; --paper: #151a21; --panel: #1e252e; } }
body { margin: 0 auto; max-width: 900px; padding: 20px; font: 15px/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--paper); overflow-wrap: anywhere; }
h2 { margin: 32px 0 8px; } h3 { margin: 20px 0 4px; font: 600 15px ui-monospace, monospace; } p { margin: 4px 0; }
table { border-collapse: collapse; width: 100%; } td { padding: 3px 12px 3px 0; border-top: 1px solid var(--line);
  vertical-align: top; } td:first-child { width: 12em; font-family: ui-monospace, monospace; }
.faint { color: var(--faint); } pre { background: var(--panel); padding: 8px 12px; white-space: pre-wrap; }
"""


def documentation(description: Mapping[str, Any]) -> str:
    info, schemas = description["info"], description["components"]["schemas"]
    sections: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            sections.setdefault(operation["tags"][0], []).extend(_operation(schemas, path, method, operation))
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}: control API</h1>",
        f"<p>{escape(info['description'])}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>',
        *(f"<h2>{escape(tag)}</h2>" + "".join(found) for tag, found in sections.items()),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(info['title'])} control API</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _operation(schemas: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{escape(path[1:])}">{method.upper()} {escape(path)}</h3><p>{escape(operation["description"])} '
    yield f'<span class="faint">In Python: <code>{escape(operation["x-python"])}</code></span></p>'
    fields = list(fields_of(schemas, operation))
    if fields:
        yield "<table>"
        for name, schema, is_required in fields:
            about = [_kind(schemas, schema), "required" if is_required else _default(schema)]
            text = "; ".join(filter(None, [schema.get("description", ""), ", ".join(filter(None, about))]))
            yield f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>"
        yield "</table>"
    required = {name: f"<{name}>" for name, _, is_required in fields if is_required}
    if method == "get":
        query = "?" + "&".join(f"{name}={value}" for name, value in required.items()) if required else ""
        yield f"<pre>{escape(f'GET {path}{query}')}</pre>"
    else:
        yield f"<pre>{escape(f'POST {path} {json.dumps(required)}')}</pre>"


def fields_of(
    schemas: Mapping[str, Any], operation: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield the name and the schema of each field, and whether it must be given."""
    for each in operation.get("parameters", ()):
        yield each["name"], {"description": each.get("description", ""), **each["schema"]}, each.get("required", False)
    if "requestBody" not in operation:
        return
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    for each in (body, *body.get("anyOf", ())):
        form = _resolved(schemas, each)
        for name, schema in form.get("properties", {}).items():
            yield name, schema, name in form.get("required", ())


def _resolved(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _kind(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_kind(schemas, each) for each in options))
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        form = _resolved(schemas, schema)
        inner = ", ".join(f"{name}: {_kind(schemas, each)}" for name, each in form.get("properties", {}).items())
        return "{" + inner + "}" if inner else _kind(schemas, form)
    if schema.get("type") == "array":
        return f"a list of {_kind(schemas, schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _default(schema: Mapping[str, Any]) -> str:
    return f"default {json.dumps(schema['default'])}" if schema.get("default") not in (None, {}, []) else "optional"
