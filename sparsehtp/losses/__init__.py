"""HOW a fit is scored."""

from .base import AbstractConjugateLoss as AbstractConjugateLoss
from .base import AbstractLoss as AbstractLoss
from .hinge import Hinge as Hinge
from .hinge import SmoothedHinge as SmoothedHinge
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .poisson import Poisson as Poisson
from .softmax import Softmax as Softmax
from .squared import Squared as Squared
from .vector import AbstractVectorLoss as AbstractVectorLoss
from .vector import PerResponse as PerResponse
