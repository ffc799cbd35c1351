"""Recordings of requests and responses in a file, and their replay to any server.

Owns: the format of the file, the recorder, and the comparison of answers with recorded answers.

Uses: the interceptor of requests, which connections tell what they receive and send.

Never: records requests that can contain secrets, or delays one.
"""
