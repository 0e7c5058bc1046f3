"""Jobs of several processes: python WORKER PROCESS PROCESSES PORT ..."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def start(worker, processes, *options):
    """The processes of one job, started; they share their standard output with their errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = Path(__file__).parent / "scaling" / worker
    settings = dict(env={**os.environ, "JAX_PLATFORMS": "cpu"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    commands = [[sys.executable, place, *map(str, (i, processes, port, *options))] for i in range(processes)]
    return [subprocess.Popen(command, text=True, **settings) for command in commands]
