"""Adapters with one small protocol for every client: one JSON object in a line for each command and each response.

A request names its command in `do`; the response is `{"answer": ...}` or `{"error": name, "message": ...}`, where the
name "unsupported" means that the client has no such feature. `{"note": n}` comes before the response to a `read`: at
the n-th record if the request names it, and when the last record has been read.
"""
