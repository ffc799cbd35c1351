"""Name the refusals of this room: bytes that are not the record batch they claim to be."""


class InvalidBatch(ValueError):
    """Report bytes that cannot be read as a record batch; the caller knows whether it is a verdict or damage."""


class UnfoldedTooLarge(InvalidBatch):
    """Report records that unfold to more than whoever reads them is ready to hold."""


class UnreadableRecords(InvalidBatch):
    """Report records that cannot be unfolded: their codec does not exist, or is not the one they were written with."""
