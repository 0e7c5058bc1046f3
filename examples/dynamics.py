"""Equations from a trajectory: an estimator as pysindy's optimizer, beside its STLSQ.

pip install sparsehtp pysindy; python examples/dynamics.py

It printed (pysindy 2.1.0, scikit-learn 1.9.1, trajectories with the same seed):

    Lorenz, noise 0.01, sparsehtp: 7 terms, 0 wrong, 0 missing
      -9.997 x +  9.997 y
       27.992 x + -0.998 y + -1.000 x z
      -2.666 z +  1.000 x y
    Lorenz, noise 0.01, STLSQ: 7 terms, 0 wrong, 0 missing
    Lorenz, noise 0.1, sparsehtp: 7 terms, 0 wrong, 0 missing
      -9.972 x +  9.977 y
       27.979 x + -0.995 y + -0.999 x z
      -2.667 z +  1.000 x y
    Lorenz, noise 0.1, STLSQ: 7 terms, 0 wrong, 0 missing
    Lorenz, noise 0.5, sparsehtp: 7 terms, 1 wrong, 1 missing
      -9.812 x +  9.845 y
       26.471 x + -0.956 x z + -0.029 y z
      -2.668 z +  0.999 x y
    Lorenz, noise 0.5, STLSQ: 9 terms, 2 wrong, 0 missing
    Burgers, sparsehtp: u_t =  0.101 u_11 + -1.004 uu_1
    Burgers, STLSQ: u_t = -0.907 uu_1
"""

import numpy as np
import pysindy
from scipy.integrate import solve_ivp

from sparsehtp import SparseRegressor


def lorenz(_, u):
    x, y, z = u
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


def burgers(points=256, length=20.0):
    """u_t = -u u_x + 0.1 u_xx on a periodic interval: (places, times, u)."""
    x = np.linspace(-length / 2, length / 2, points, endpoint=False)
    wave = 2j * np.pi * np.fft.rfftfreq(points, x[1] - x[0])

    def slope(_, u):
        spectrum = np.fft.rfft(u)
        return -u * np.fft.irfft(wave * spectrum) + 0.1 * np.fft.irfft(wave**2 * spectrum)

    t = np.linspace(0, 8, 161)
    u = solve_ivp(slope, (t[0], t[-1]), np.exp(-((x + 2) ** 2)), t_eval=t, rtol=1e-8, atol=1e-10).y
    return x, t, u


def optimizers(**terms):
    """Ours, by how many terms an equation has, and STLSQ, which leaves out coefficients below its threshold."""
    ours = SparseRegressor(**terms, l2=0, fit_intercept=False)
    return {"sparsehtp": pysindy.WrappedOptimizer(ours), "STLSQ": pysindy.STLSQ(threshold=0.1)}


def main():
    t = np.arange(0, 10, 0.002)
    path = solve_ivp(lorenz, (0, 10), [-8, 8, 27], t_eval=t, rtol=1e-10, atol=1e-10).y.T
    terms = {(0, "x"), (0, "y"), (1, "x"), (1, "y"), (1, "x z"), (2, "z"), (2, "x y")}
    for noise in (0.01, 0.1, 0.5):  # ebic finds the numbers of terms, 2, 3 and 2
        seen = path + noise * np.random.default_rng(0).standard_normal(path.shape)
        for name, optimizer in optimizers(k=range(8), rule="ebic").items():
            model = pysindy.SINDy(
                optimizer=optimizer,
                feature_library=pysindy.PolynomialLibrary(degree=3),
                differentiation_method=pysindy.SmoothedFiniteDifference(),
            ).fit(seen, t=t, feature_names=["x", "y", "z"])
            names = model.get_feature_names()
            found = {(i, names[j]) for i, j in np.argwhere(model.coefficients())}
            print(
                f"Lorenz, noise {noise}, {name}: {len(found)} terms, "
                f"{len(found - terms)} wrong, {len(terms - found)} missing"
            )
            if name == "sparsehtp":
                print(*(f"  {equation}" for equation in model.equations(3)), sep="\n")
    x, t, u = burgers()
    for name, optimizer in optimizers(k=2).items():
        library = pysindy.PDELibrary(
            function_library=pysindy.PolynomialLibrary(degree=2, include_bias=False),
            derivative_order=3,
            spatial_grid=x,
        )
        model = pysindy.SINDy(optimizer=optimizer, feature_library=library).fit(u[:, :, None], t=t, feature_names=["u"])
        print(f"Burgers, {name}: u_t = {model.equations(3)[0]}")


if __name__ == "__main__":
    main()
