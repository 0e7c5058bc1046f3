"""Least squares on a Spark table: every partition becomes statistics, which are merged on the driver.

pip install 'sparsehtp[parquet]' pyspark; python examples/spark.py

It printed (pyspark 4.3.0, local mode):

    100000 rows in 4 partitions: ['x3' 'x8']
    No exchange of one chosen feature for another lowers the objective (by more than 1e-10 of its value), with all
    coefficients fitted again. Proved optimal: no other choice lowers the objective by more than 1e-07 of its value.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

import sparsehtp as sht

TARGET, FEATURES = "price", [f"x{j}" for j in range(20)]


def statistics_of(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Those of one partition, as the bytes of a file that `sht.load` reads."""
    batches = ((frame[FEATURES], frame[TARGET]) for frame in frames if len(frame))
    with tempfile.TemporaryDirectory() as folder:
        path = sht.save(sht.SufficientStatistics.from_batches(batches), Path(folder) / "statistics.npz")
        yield pd.DataFrame({"bytes": [path.read_bytes()]})


def loaded(data: bytes) -> sht.SufficientStatistics:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "statistics.npz"
        path.write_bytes(data)
        return sht.load(path)


def main() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((100_000, 20)) + 50, columns=FEATURES)
    table[TARGET] = 2 * table["x3"] - table["x8"] + rng.standard_normal(len(table))

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = spark.createDataFrame(table).repartition(4)
    parts = rows.mapInPandas(statistics_of, "bytes binary").collect()
    first, *others = (loaded(bytes(part["bytes"])) for part in parts)
    statistics = first.merge(*others)
    spark.stop()

    model = sht.SparseRegressor().fit(statistics)
    print(f"{statistics.n_samples} rows in {len(parts)} partitions: {np.array(FEATURES)[model.support_]}")
    print(model.certificate_.statement)


if __name__ == "__main__":
    main()
