"""Numerical kernels shared by designs, objectives and solvers."""

from .bisection import bisect as bisect
from .draws import mixed as mixed
from .draws import uniform as uniform
from .lanes import LANE as LANE
from .lanes import START as START
from .lanes import any_lane as any_lane
from .lanes import max_lane as max_lane
from .lanes import one_by_one as one_by_one
from .largest import largest as largest
from .log_determinant import Factor as Factor
from .log_determinant import Interval as Interval
from .log_determinant import factorise as factorise
from .log_determinant import minimise_log_det as minimise_log_det
from .log_determinant import shrunk as shrunk
from .log_determinant import smallest_and_largest as smallest_and_largest
from .low_rank import leading_triplets as leading_triplets
from .masked_cholesky import masked_factor as masked_factor
from .power_iteration import largest_eigenvalue as largest_eigenvalue
from .power_iteration import random_start as random_start
from .power_iteration import sparse_eigenvalue as sparse_eigenvalue
from .products import dot as dot
from .restricted_newton import Refit as Refit
from .restricted_newton import minimise as minimise
from .sparse_eigenvector import sparse_eigenvector as sparse_eigenvector
from .top_k import top_k as top_k
from .truncated_newton import truncated_newton as truncated_newton
