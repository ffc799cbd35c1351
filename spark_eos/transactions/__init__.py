"""One answer to "what blocks the last stable offset?", for every view.

An answer names the transaction, how long it has blocked, its transactional id, whether it is live or hangs, and the
evidence. `standstills` finds the partitions, `judge` decides with the coordinators' descriptions, `findings` has the
words. Warnings in the log, `doctor`, `watch`, `timeline`, `find-hanging` and the console show them.
"""
