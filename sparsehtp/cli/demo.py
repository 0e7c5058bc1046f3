"""The demonstration: `fit` on scikit-learn's breast-cancer data."""

from pathlib import Path

from ..datasets import Data
from .fit import Fit
from .options import FitOptions


class Demo(Fit):
    """Forward selection of five features for the logistic loss, 30% of the rows held out."""

    source = "breast cancer (scikit-learn)"

    def __init__(self, out: Path) -> None:
        super().__init__(
            FitOptions(file=Path(), loss="logistic", solver="forward", k="5", l2=1e-3, test_size=0.3, out=out)
        )

    def read(self) -> Data:
        """569 tumours, 30 measurements, labels malignant and benign."""
        from sklearn.datasets import load_breast_cancer

        bunch = load_breast_cancer()
        names = [str(name) for name in bunch.feature_names]
        return Data(bunch.data, bunch.target_names[bunch.target].astype(str), names, "diagnosis")
