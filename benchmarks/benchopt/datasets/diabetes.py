"""Scikit-learn's diabetes data with squares and products: 442 patients, 65 features."""

from benchopt import BaseDataset
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler


class Dataset(BaseDataset):
    name = "diabetes"
    parameters = {"k": [10]}

    def get_data(self):
        X, y = load_diabetes(return_X_y=True)
        scaled = make_pipeline(PolynomialFeatures(include_bias=False), StandardScaler()).fit_transform(X)
        return {"X": scaled, "y": y - y.mean(), "k": self.k}
