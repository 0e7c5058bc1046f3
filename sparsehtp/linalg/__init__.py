"""Numerical kernels shared by designs, objectives and solvers."""

from .lanes import LANE as LANE
from .lanes import START as START
from .lanes import any_lane as any_lane
from .lanes import max_lane as max_lane
from .masked_cholesky import masked_factor as masked_factor
from .power_iteration import largest_eigenvalue as largest_eigenvalue
from .power_iteration import random_start as random_start
from .power_iteration import sparse_eigenvalue as sparse_eigenvalue
from .products import dot as dot
from .restricted_newton import Refit as Refit
from .restricted_newton import minimise as minimise
from .top_k import top_k as top_k
