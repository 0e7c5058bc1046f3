"""Laws that every part keeps, for parts of your own: what scikit-learn's `check_estimator` is to estimators."""

from .losses import check_loss as check_loss
from .objectives import check_objective as check_objective
from .solvers import check_solver as check_solver
from .steps import check_step as check_step
from .thresholds import check_threshold as check_threshold
