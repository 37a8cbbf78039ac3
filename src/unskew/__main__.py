"""`python -m unskew`."""

from unskew.terminal.main import main

main()
