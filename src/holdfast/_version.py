"""The version of Holdfast, and nothing else."""

__version__ = "0.1.0"
