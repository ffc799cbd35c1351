"""The transaction coordinator: the state of transactional ids, stored in `__transaction_state`.

Owns: the states, the decision tables of requests, the record format, the queue of markers, timeouts and expiration.
Uses: `coordinator.journal` to append and read records; its caller for the time and for new producer ids.
Never: writes to a data partition; it returns marker orders and accepts their answers.
"""
