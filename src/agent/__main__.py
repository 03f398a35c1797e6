"""Run the command line with `python -m agent`."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
