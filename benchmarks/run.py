"""`python -m benchmarks.run NAME [NAME ...]`: run benchmarks, print them, and store them in benchmarks/results."""

import importlib
import sys

NAMES = ("core",)


def main(names):
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        sys.exit(f"usage: python -m benchmarks.run NAME [NAME ...], with NAME one of: {', '.join(NAMES)}")
    for name in names:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
