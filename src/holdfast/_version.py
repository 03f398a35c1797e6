"""The version of Holdfast, and nothing else."""

__version__ = "0.2.0"
