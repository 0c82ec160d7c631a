"""`python -m dslc` is `dslc`."""

from dslc.cli.entry import main

main()
