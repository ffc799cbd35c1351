"""The transaction coordinator: the state of transactional ids, kept in `__transaction_state`.

Owns: the states, the decision tables of each request, the record format, the queue of markers, timeouts and expiration.
Uses: `coordinator.journal` to append and read records; its caller for the time and for new producer ids.
Never: writes to a data partition; it hands out marker orders and takes their answers.
"""
