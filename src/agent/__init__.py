"""Another name for the command line: `python -m agent` is `python -m holdfast`."""
