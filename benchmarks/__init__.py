"""Benchmarks: `python -m benchmarks.run NAME`."""
