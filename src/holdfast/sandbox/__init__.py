"""Touch a file or run a process without leaving the place it was given.

`Workspace` is the way to files. Only the tools room looks in here.
"""

from holdfast.sandbox.path_rules import PathRules
from holdfast.sandbox.workspace import Entry, FileChange, FileInfo, Workspace

__all__ = ["Entry", "FileChange", "FileInfo", "PathRules", "Workspace"]
