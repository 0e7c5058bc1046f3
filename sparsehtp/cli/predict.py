"""New rows: the path of `predict`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

import sparsehtp as sht

from ..datasets.files import SUFFIXES, TABLES, check_file, format_of
from ..datasets.numerals import AS_IT_SAYS, Written
from ..datasets.tables import read_table
from ..io import check_output, write_whole
from .common import one_sentence, plain_labels, plotting
from .files import for_csv
from .options import PredictOptions
from .report import Console
from .tables import filled, print_notes, written


def write_predictions(options: PredictOptions) -> None:
    """Predict the rows of a table and write them; exits with 2 for bad input."""
    errors, out = Console(stderr=True), options.out
    with one_sentence(errors, ValueError, OSError, ImportError):
        if out is not None:
            if out.is_dir():
                raise OSError(f"out: {out} is a folder; name a file, for example {out / 'predictions.csv'}.")
            check_output(out.absolute().parent)
        predictions, notes = predict_rows(_loaded(options.model), options.file, written(options))
        print_notes(errors, notes)
        with plotting(errors, "Predicting"):
            predictions.columns = for_csv(predictions.columns)
            texts = [name for name, dtype in predictions.dtypes.items() if dtype.kind == "O"]
            predictions = predictions.assign(**{name: for_csv(predictions[name]) for name in texts})
            text = predictions.to_csv(index=False, lineterminator="\n")
        if out is None:
            sys.stdout.write(text)
        else:
            out.absolute().parent.mkdir(parents=True, exist_ok=True)
            write_whole(out, lambda target: target.write(text.encode()))
            errors.print(f"{len(predictions)} predictions written to {out.absolute()}", highlight=False, soft_wrap=True)


def _loaded(path: Path) -> Pipeline:
    if not path.is_file():
        raise FileNotFoundError(f"model: there is no file {path}; write it by `sparsehtp fit --save`.")
    if SUFFIXES.get(path.suffix.lower()) in TABLES:
        raise ValueError(f"model: {path.name} is a table; the model comes first, and then the table.")
    model = sht.load(path)
    if not (isinstance(model, Pipeline) and isinstance(model[0], sht.TablePreprocessor)):
        raise ValueError(
            f"model: {path.name} was not fitted to a table; use sparsehtp.load and the model's predict in Python."
        )
    return model


def predict_rows(model: Pipeline, file: Path, given: Written = AS_IT_SAYS) -> tuple[pd.DataFrame, Sequence[str]]:
    """The id, if there is one, and the prediction of every row; of classes their probabilities, of two the second's.

    Numbers are written as given, else as they say themselves, else as those of the fit; notes say how they were read.

    Raises:
        ValueError: for a file that is no table, or lacks a column of the fit or holds another kind of cells in it.
    """
    check_file(file)
    if format_of(file) not in TABLES:
        raise ValueError(f"path: {file.name} is no table; give a .csv, .xlsx or .parquet file.")
    table, estimator = model[0], model[-1]
    id = getattr(table, "id", None)
    learned = Written(table.decimal, table.thousands)
    read = read_table(file, given, learned, as_is=[*table.texts_, *([] if id is None else [id])])
    read.check(file, table.group_names_)
    frame = read.frame
    frame.columns = [str(name) for name in frame.columns]
    frame = frame.loc[:, [name in {*table.group_names_, id} for name in frame.columns]]
    if not len(frame):
        raise ValueError(f"path: {file.name} has 0 rows of data below its header; at least one is needed.")
    try:
        X = table.transform(frame).astype(estimator.coef_.dtype)
    except ValueError as error:
        raise ValueError(f"path: {file.name}{str(error).removeprefix('X')}") from error
    notes, gaps = list(read.notes), [name for name in table.numbers_ if frame[name].isna().any()]
    if gaps:
        notes.append(filled(frame[gaps], "as in the fit"))
    if id == "prediction" and id in frame.columns:
        raise ValueError(f"path: the id of {file.name} has the name of the predictions; rename the column there.")
    columns: dict[str, Any] = {} if id is None or id not in frame.columns else {id: frame[id].to_numpy()}
    columns["prediction"] = plain_labels(estimator.predict(X))
    if hasattr(estimator, "predict_proba"):
        levels = getattr(estimator, "levels_", estimator.classes_)
        places = np.searchsorted(estimator.classes_, levels)
        names, shares = plain_labels(levels), estimator.predict_proba(X)[:, places]
        told = range(1, 2) if names.size == 2 else range(names.size)
        columns |= {f"probability of {names[i]}": shares[:, i] for i in told}
    return pd.DataFrame(columns), notes
