"""Losses: how the prediction of a sample is scored."""

from .base import AbstractConjugateLoss as AbstractConjugateLoss
from .base import AbstractLoss as AbstractLoss
from .base import AbstractRowLoss as AbstractRowLoss
from .base import AbstractVectorLoss as AbstractVectorLoss
from .gamma import Gamma as Gamma
from .hinge import Hinge as Hinge
from .hinge import SmoothedHinge as SmoothedHinge
from .hinge import SquaredHinge as SquaredHinge
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .negative_binomial import NegativeBinomial as NegativeBinomial
from .poisson import Poisson as Poisson
from .quantile import Quantile as Quantile
from .softmax import Softmax as Softmax
from .squared import Squared as Squared
from .tweedie import Tweedie as Tweedie
