"""Every place where rounding is allowed for: what stands there without it and the test that fails then, or a reason.

`tests/references/test_slacks.py` looks for places that are not here, and runs each test without its slack.
"""

HERE = "references/test_slacks.py not every_slack"
ROUNDING = "references/test_rounding.py next_to_nothing"
COPY = "duality/test_priced_subset.py an_exchange_with_a_copy_is_no_gain"
NEWTON = "contracts/test_linalg.py what_newton_cannot_value_stops_no_step"
SPAN = "contracts/test_linalg.py span_of_chosen_features"
GAIN = "path/test_path_over_l0.py rounding_is_no_gain_to_a_path_over_l0"
SHARES = "path/test_stability.py shares_are_those_of_their_decimals"
SLOPES, THRESHOLDS = "contracts/test_losses.py ends_of_the_slopes", "contracts/test_thresholds.py "
NOTHING = "contracts/test_objectives.py column_of_nothing"
PRECISION = "precision/test_objective.py "
LEFT, DIFFERS = PRECISION + "what_rounding_left", PRECISION + "differs_by_rounding"
FLAT, ORDINAL = "contracts/test_custom.py flat_minimum", "contracts/test_ordinal.py "
STATED = "a tolerance that the docstring states"
SPEED = "how far to iterate, or how long that may take: any number is safe, since only what is proved is used"
TOLD = "an error that is told to the user, and decides nothing"
# rooms of which every place is here
COMPLETE = ("certificates", "screening", "duality", "solvers", "grids", "losses", "columns", "designs", "objectives")
# file -> place -> why it is so, or what stands there without it and the test, a file and its name, that fails then
SLACKS = {
    "certificates/dual_bound.py": {'tolerance("gap", dtype)': STATED},
    "certificates/penalised.py": {
        'tolerance("swap", dtype)': STATED,
        'tolerance("stationary", dtype)': STATED,
        "LEAST_CURVATURE = 1e-14": "eigenvalues of columns of norm one are wrong by some eps of the largest",
        "64 * np.finfo(dtype).eps": "a bound is kept to the rounding of a solution's units",
    },
    "certificates/certificate.py": {
        "EXACTLY, NEARLY =": "singular values between which refits by normal equations cannot say what a column adds",
        "eps = np.finfo(np.result_type(": TOLD,
        'tolerance("swap", fit.dtype)': STATED,
        'tolerance("stationary", fit.dtype)': STATED,
        "100 * np.finfo(H.dtype).eps": "eigenvalues of H are wrong by some eps of the largest: exact copies have such",
    },
    "certificates/placed.py": {"ROUNDINGS * jnp.finfo(z.dtype).eps": ("0", ROUNDING)},
    "certificates/nodes.py": {
        "LEAST_PIVOT = 1e-9": "what is below it is refitted from the data: more refits, the same answer",
        "(M.shape[0] + ROUNDINGS) * jnp.finfo(M.dtype).eps": ("0.0", HERE),
        "2 * ROUNDINGS * jnp.finfo(g.dtype).eps * terms": ("0", HERE),
    },
    "certificates/swap_scan.py": {"eps, tiny = jnp.finfo(rows.dtype).eps,": ("eps, tiny = 0,", ROUNDING)},
    "certificates/least_squares.py": {
        "ZERO = 1e-13": "the share of F(0) to which a proof of gap 0 is said to be closed",
        "COPY = 16 * EPS": "what is stated of columns that copy others in other units",
        "SURE = 1e-10": ("SURE = 1.0", HERE),
        "BLUR = 1e-8": SPEED,
        "+ 64 + 16 * self.size) * EPS": "sums of 4096 terms; below, it divides the squares of what the columns lose",
        "lost = rounding * raw / energy if self._lossy": "sums less n mean^2 lose the digits of raw / energy",
        "lost_target = rounding": "the same for the targets",
        "ZERO * c0, 64 * EPS**2": "which values a collection holds as equal to zero, as stated",
        "self._grain = EPS *": ("self._grain = 0 *", HERE),
        "self._target_grain = EPS *": ("self._target_grain = 0 *", HERE),
        "wrong = EPS *": "rounding of large coefficients as they are returned, beside that of the fit itself",
    },
    "certificates/tree.py": {
        "VALUE_ERROR = 1e-6": STATED,
        "VALUE_ROUNDING = 1e-9": "supports that are as good as the last one belong to a collection",
    },
    "certificates/exchanges.py": {
        "LEAST_SHARE = 1e-9": "what is below it is fitted from the data: more fits, the same answer",
        "100 * np.finfo(q.dtype).eps": "a division by what rounding left of a copy",
    },
    "certificates/prove.py": {
        "MOST_HIDDEN = 1e-6": STATED,
        "4 * np.finfo(float).eps * upper": "its two sums round, too",
    },
    "certificates/generalised.py": {
        "NODE = 2e-8": SPEED,
        "ACCURACY = 1e-9": SPEED,
        "LEAST_ZERO = 1e-12": "the share of F(0) to which a proof of gap 0 is closed",
    },
    "certificates/data.py": {
        "EPS = float(": "its name",
        "NO_DEVIATION = 1e-24": "columns that are constant but for rounding: their deviation has no digit",
    },
    "certificates/diagonal.py": {"ACCURACY = 1e-4": SPEED},
    "certificates/quadratic.py": {
        "TUNING = 2e-8": SPEED,
        "NODE, LEAF = 3e-6, 3e-8": SPEED,
        "LEAST_DIAGONAL = 1e-9": SPEED,
        "SCOUT = 1e-4": SPEED,
        "10 * p * EPS": "eigenvalues are wrong by some p eps of the largest one",
    },
    "screening/bounds.py": {
        'tolerance("gap", dtype)': STATED,
        "VALUE_ROUNDINGS * float(jnp.finfo(dtype).eps)": ("0", HERE),
    },
    "duality/dual.py": {"(objective.y.shape[0] + 64) * jnp.finfo(point.a.dtype).eps": ("0.0", HERE)},
    "duality/relaxation.py": {
        "HINGE_SMOOTHING = 1e-3": SPEED,
        "slack = 16 * jnp.finfo(base.dtype).eps": "steps that are refused for rounding alone shrink for ever",
    },
    "solvers/working_set.py": {
        "jnp.maximum(100 * jnp.finfo(dtype).eps * diagonal": (
            "jnp.maximum(jnp.finfo(dtype).eps * diagonal",
            "contracts/test_best_subset.py span_of_what_is_kept",
        )
    },
    "solvers/priced_subset.py": {
        'tolerance("swap", t.c.dtype) * prices.scale + swap_noise(equations)': (
            'tolerance("swap", t.c.dtype) * prices.scale',
            COPY,
        ),
        'tolerance("swap", value.dtype)': STATED,
        "slack = 1 + 10 * jnp.finfo(A.dtype).eps": (
            "slack = 1 + 0 * jnp.finfo(A.dtype).eps",
            "duality/test_priced_subset.py always_in_are_optimised_out",
        ),
    },
    "solvers/pivot_search.py": {
        "10 * jnp.finfo(equations.constant.dtype).eps": ("0.1 * jnp.finfo(equations.constant.dtype).eps", COPY),
        'tolerance("swap", t.c.dtype) * scale + noise': (
            'tolerance("swap", t.c.dtype) * scale',
            "contracts/test_searches.py where_all_is_explained",
        ),
    },
    "solvers/best_subset.py": {'tolerance("swap", ': STATED},
    "solvers/unit_search.py": {
        "DAMPING = 1e-3": "a model that proposes only: a refit of F decides",
        "eps ** -0.25": "between a spring that yields and one that hides the pivots of nearly collinear columns",
        'tolerance("swap", value.dtype) * jnp.abs(value) + 5 * jnp.finfo(value.dtype).eps * jnp.abs(c0)': (
            'tolerance("swap", value.dtype) * jnp.abs(value)',
            "contracts/test_best_subset.py explain_everything",
        ),
        '- tolerance("swap", value.dtype)': STATED,
    },
    "solvers/unit_model.py": {
        "floor = 100 * jnp.finfo": ("floor = jnp.finfo", "contracts/test_unit_search.py span_of_kept_units"),
        "least = 100 * jnp.finfo": ("least = jnp.finfo", "contracts/test_unit_search.py no_part_of_its_own"),
    },
    "solvers/reduced_rank.py": {
        'tolerance("pivot", B.dtype)': STATED,
        "M + 1e-10 * eye": ("M", "contracts/test_multi_response.py singular_system"),
    },
    "solvers/cdss.py": {
        'tolerance("swap", state.value.dtype)': STATED,
        '0.1 * tolerance("gap", value.dtype)': SPEED,
        '0.05 * tolerance("gap", x.dtype)': SPEED,
    },
    "solvers/primal_dual.py": {
        "OMEGA, ZETA = 5e-4, 1e-6": "numbers of the paper",
        'tolerance("gap", objective.dtype)': STATED,
    },
    "solvers/iht.py": {
        "slack = 16 * jnp.finfo(point.dtype).eps": ("slack = 0", "contracts/test_solvers.py rounding_refuses_no_step")
    },
    "solvers/htp.py": {
        "16 * jnp.finfo(value.dtype).eps": "a refit of what is solved ends at the same F but for rounding"
    },
    "solvers/foba.py": {
        "10 * jnp.finfo(value.dtype).eps * jnp.abs(value)": (
            "0 * jnp.abs(value)",
            "contracts/test_forward.py rounding_that_a_fit_leaves",
        )
    },
    "solvers/hybrid.py": {"exact * (1 - 1e-12)": ("exact", "contracts/test_stochastic.py sizes_of_batches")},
    "linalg/tableau.py": {
        "100 * eps * diagonal": ("0 * diagonal", SPAN),
        "1e3 * jnp.finfo(g.dtype).eps": ("0", SPAN),
        "eps = jnp.finfo(dtype).eps": "its name",
    },
    "linalg/box.py": {"jnp.finfo(slope.dtype).eps": ("0", "contracts/test_linalg.py spare_coordinate")},
    "linalg/restricted_newton.py": {
        "jnp.minimum(dot(slope, new - c.z), 0) + 8 * eps * jnp.abs(c.value)": (
            "jnp.minimum(dot(slope, new - c.z), 0)",
            NEWTON,
        ),
        "(new_value <= c.value + 8 * eps * jnp.abs(c.value))": ("(new_value <= c.value)", NEWTON),
    },
    "linalg/truncated_newton.py": {"slack = 8 * eps * jnp.abs(s.value)": ("slack = 0.0", NEWTON)},
    "linalg/low_rank.py": {"4 * jnp.finfo(A.dtype).eps": ("0", "contracts/test_low_rank.py nearest")},
    "thresholds/simplex.py": {"(1 + 4 * jnp.finfo(z.dtype).eps)": ("1", THRESHOLDS + "nearest_of_a_sum")},
    "thresholds/bounded.py": {"2 * jnp.finfo(objective.dtype).eps": ("0", THRESHOLDS + "whatever_is_rounded")},
    "grids/penalised_path.py": {
        'tolerance("swap", np.dtype(': STATED,
        "np.max(np.abs(host(model.y)))": ("np.min(np.abs(host(model.y)))", GAIN),
        "100 * np.finfo(model.dtype).eps": ("np.finfo(model.dtype).eps", GAIN),
        "1e-9 * abs(value)": ("0 * abs(value)", GAIN),
    },
    "grids/stability.py": {"- 0.5e-6": ("", SHARES), "- 1e-6": ("", SHARES), " + 1e-9": ("", SHARES)},
    "grids/folds.py": {
        "np.round(each / (np.max(np.abs(each)) or 1), 9)": (
            "each",
            "path/test_cross_validation.py rounding_orders_no_rows",
        )
    },
    "grids/tall.py": {
        "ENOUGH = 1e-10": SPEED,
        "FLAT = 1e-2": SPEED,
        "p * np.finfo(dtype).eps * values[-1]": "eigenvalues are wrong by some p eps of the largest one",
        "float(jnp.finfo(found.x.dtype).eps) / 8": SPEED,
    },
    "estimators/lda.py": {"> 1e-6": ("> 0", "estimators/test_selection.py shares_that_sum_to_one")},
    "estimators/regressor.py": {" + 1e-12": ("", "estimators/test_selection.py never_infinite")},
    "estimators/robust_pca.py": {
        "FLOOR = 1e-14": ("FLOOR = 0", "estimators/test_robust_pca.py tolerance_below_rounding")
    },
    "estimators/scoring.py": {"1e-5 * weights.max()": ("0", "estimators/test_selection.py weights_that_are_alike")},
    "estimators/sparse_pca.py": {
        "p * np.finfo(X.dtype).eps * total": (
            "p * np.finfo(float).eps * total",
            "estimators/test_sparse_pca.py single_precision_rounds",
        ),
        "100 * np.finfo(np.float32).eps": ("0", "estimators/test_sparse_pca.py covariance_of_single"),
        "room = 1 + ROUNDING * p * np.finfo(float).eps": ("room = 1", "estimators/test_sparse_pca.py exact_variance"),
    },
    "losses/logistic.py": {"<= 4 * jnp.finfo(u.dtype).eps": ("<= 0", SLOPES)},
    "losses/negative_binomial.py": {
        "<= 4 * jnp.finfo(s.dtype).eps": ("<= 0", SLOPES),
        "DISPERSIONS = (1e-6, 1e6)": STATED,
    },
    "losses/poisson.py": {"jnp.maximum(a + y, jnp.finfo(a.dtype).tiny)": ("a + y", SLOPES)},
    "losses/gamma.py": {"jnp.maximum(1 - a, jnp.finfo(a.dtype).tiny)": ("1 - a", SLOPES)},
    "losses/tweedie.py": {"SERIES = 3e-4": ("SERIES = 3e-6", "contracts/test_losses.py rate_of_nearly_zero")},
    "columns/columns.py": {
        "ridge < jnp.finfo(x.dtype).tiny": ("ridge < 0", "regressions/test_scales.py ridge_of_a_far"),
        "return jnp.finfo(self.dtype).eps * (self._moved(x)": TOLD,
    },
    "columns/moments.py": {'deviation <= tolerance("constant", deviation.dtype) *': ("deviation <= 0 *", NOTHING)},
    "columns/prepare.py": {
        "np.maximum(np.where(largest > 0, last, 0), digits.tiny)": ("np.where(largest > 0, last, 0)", NOTHING)
    },
    "objectives/linear_model.py": {
        "float(jnp.finfo(self.dtype).tiny / jnp.finfo(self.dtype).eps)": "coefficients of less than any number",
        "MIN_CURVATURE = 1e-3": SPEED,
        "FLAT_CURVATURE = 1e-2": SPEED,
        "KINKED_CURVATURE = 1e-3": SPEED,
    },
    "objectives/model.py": {"rise > jnp.finfo(self.dtype).eps * jnp.abs(flat)": TOLD},
    "objectives/precision.py": {
        "10 * p * jnp.finfo(S.dtype).eps * largest": ("0 * largest", PRECISION + "least_eigenvalue"),
        "jnp.maximum(power - 1 / p, jnp.finfo(R.dtype).tiny)": ("(power - 1 / p)", PRECISION + "uncorrelated"),
        "-max(1e-6, 100 * np.finfo(S.dtype).eps)": ("-min(1e-6, 100 * np.finfo(S.dtype).eps)", LEFT),
        "<= 1e3 * np.finfo(S.dtype).tiny": ("<= 0", LEFT),
        'tolerance("constant", X.dtype) * np.abs(live)': ("0 * np.abs(live)", DIFFERS),
        "jnp.max(jnp.abs(location), axis=0)": ("jnp.min(jnp.abs(location), axis=0)", DIFFERS),
        "LEAST_VARIANCE = 1e-8": ("LEAST_VARIANCE = 1e-10", DIFFERS),
        "XI = 1e-2": "what the docstring states",
    },
    "objectives/restricted_precision.py": {
        "jnp.maximum(own - w**2, jnp.finfo(W.dtype).tiny)": ("(own - w**2)", PRECISION + "no_removal_is_free"),
        "variances[:, None] * variances - W**2, jnp.finfo(W.dtype).tiny)": "no case was found: a factor leaves more",
    },
    "objectives/custom_ends.py": {
        "SMALL = 1e-3": ("SMALL = 1e-1", FLAT),
        '& both[1], tolerance("pivot", x.dtype) ** 0.5': ("& both[1], 0", FLAT),
        'slack = tolerance("pivot", x.dtype) ** 0.5 * jnp.linalg.norm(direction)': "no case was found",
    },
    "objectives/custom_restricted.py": {'tolerance("pivot", z.dtype) * most': "what is turned round is as small"},
    "objectives/cumulative_logits.py": {"NARROW = 1e-12": ("NARROW = 0", ORDINAL + "gap_of_nearly_nothing")},
    "objectives/ordinal.py": {
        "EMPTY = 1e-5": ("EMPTY = 1e-9", ORDINAL + "class_without_weight"),
        "ROUNDINGS * jnp.finfo(self.dtype).eps * gram": ("0 * gram", ORDINAL + "no_curvature"),
        "+ jnp.finfo(self.dtype).eps * size": TOLD,
    },
    "_types.py": {"SYMMETRY = 1e-5": ("SYMMETRY = 1e-7", LEFT)},
    "_stream.py": {
        "max(1e-12, 8 * float(np.finfo(self.dtype).eps))": ("1e-12", "scaling/test_stream.py starts_at_its_minimum"),
        "max(tol, float(np.finfo(self.dtype).eps))": SPEED,
    },
}
