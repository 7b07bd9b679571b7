"""`python -m aiomlc` is the command `aiomlc`."""

from aiomlc.cli.entry import main

if __name__ == "__main__":
    main()
