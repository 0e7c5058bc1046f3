"""`python -m sparsehtp`: the command line."""

from .cli.main import app

app()
