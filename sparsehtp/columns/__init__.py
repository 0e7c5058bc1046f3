"""Columns: a design under weights, in the units in which it is solved."""

from .checks import check_weights as check_weights
from .checks import vector as vector
from .checks import weight_vector as weight_vector
from .columns import Columns as Columns
from .columns import Units as Units
from .columns import bounded as bounded
from .columns import gather as gather
from .columns import scatter as scatter
from .columns import some_at_a_time as some_at_a_time
from .prepare import columns_of as columns_of
from .prepare import design_of as design_of
