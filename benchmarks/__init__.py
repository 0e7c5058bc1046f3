"""Benchmarks: `python -m benchmarks.run NAME`, and the papers' figures: `python -m benchmarks.papers NAME`."""
