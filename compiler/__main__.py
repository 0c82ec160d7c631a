"""`python -m dslc` is `dslc`."""

from dslc.cli.main import main

main()
