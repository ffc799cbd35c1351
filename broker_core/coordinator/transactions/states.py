"""The legal transitions between the states of a transaction, and groups of states (rules A.2).

The numbers are those in `__transaction_state`, the labels as in DescribeTransactions and ListTransactions.
"""

from typing import Final

from broker_core.types import TransactionState

_S = TransactionState

PREDECESSORS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From the idle states only with transactions V2, which may abort an empty transaction.
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

# A fence is an intermediate step to PREPARE_ABORT and a dead id is a tombstone: neither state is written.
PERSISTED: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
EXPIRABLE: Final = IDLE
BY_LABEL: Final = {state.label: state for state in _S}


def is_legal(old: TransactionState, new: TransactionState) -> bool:
    return old in PREDECESSORS[new]
