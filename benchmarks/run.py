"""`python -m benchmarks.run NAME [NAME ...]`: run benchmarks, print them, and store them in benchmarks/results."""

import argparse
import importlib
import os
import signal

OPTIONS = {  # what a benchmark's main takes
    "core": ("quick",),
    "first-answer": ("quick",),
    "compiling": ("quick",),
    "best-subset": ("quick",),
    "structures": ("quick",),
    "paths": ("quick",),
    "priced": ("quick",),
    "cv": ("quick",),
    "real": ("quick", "data"),
    "choice": ("quick", "data"),
    "bootstrap": ("quick",),
    "sparse": ("quick", "data"),
    "derivatives": ("quick",),
    "pruning": ("quick", "data"),
    "stochastic": ("quick",),
    "inner-steps": ("quick",),
    "precision": ("quick",),
    "dual": ("quick",),
    "proofs": ("quick",),
    "streaming": ("quick",),
    "rows": ("quick",),
    "growth": ("quick",),
    "devices": ("quick",),
    "gpu": ("quick", "out", "seconds", "roofline_of"),
}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="+", choices=OPTIONS, metavar="NAME", help=", ".join(OPTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; nothing is stored")
    parser.add_argument(
        "--data",
        default=os.environ.get("SPARSEHTP_DATA"),
        help="folder of the real data sets (default: the environment variable SPARSEHTP_DATA)",
    )
    parser.add_argument("--out", help="gpu: folder of the result (default: benchmarks/results, and nowhere if quick)")
    parser.add_argument("--seconds", type=float, default=540, help="gpu: the longest that all its parts may take")
    parser.add_argument("--roofline-of", metavar="RESULT", help="gpu: print the table of a stored result alone")
    given = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as from the keyboard, so that no subprocess lives on
    for name in given["names"]:
        module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
        module.main(**{option: given[option] for option in OPTIONS[name]})


if __name__ == "__main__":
    main()
