"""Step sizes and parameters by search or by gradient."""
