"""Several agents on one piece of work: delegation, workflows, and the autonomous loop.

Everything here starts runs through `RunExecutor` and keeps what it decides as facts in the
journal, so that a restart folds them and goes on. Nothing here calls a tool or a model itself.
"""
