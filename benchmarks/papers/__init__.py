"""The papers' figures and tables, rerun by name, with what they say of its claims."""

from .catalogue import EXPERIMENTS as EXPERIMENTS
from .catalogue import Experiment as Experiment
from .page import claims_page as claims_page
from .reproduce import decide_again as decide_again
from .reproduce import read_config as read_config
from .reproduce import reproduce as reproduce
from .run import Claim as Claim
from .run import Run as Run
