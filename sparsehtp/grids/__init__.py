"""Many fits as one batch: grids of k and l2, paths, folds, criteria, resamples."""
