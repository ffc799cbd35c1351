"""Adapters with one small protocol for every client: a JSON object a line in, a JSON object a line out.

A request names its command in `do`; the answer is `{"answer": ...}` or `{"error": name, "message": ...}`, where the
name "unsupported" says that the client has no such feature. `{"note": n}` comes before the answer of a `read`: once
where the request asked for it, and once when n records were all that was wanted.
"""
