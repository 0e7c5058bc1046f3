"""Results on disk."""

from .results import check_output as check_output
from .results import describe_device as describe_device
from .results import versions as versions
from .results import write_whole as write_whole
