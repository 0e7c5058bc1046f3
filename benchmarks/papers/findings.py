"""What a user of the methods takes from the claims: written by hand, each sentence with the rows that it rests on."""

from typing import NamedTuple


class Advice(NamedTuple):
    """A sentence, and the (experiment, letter) of the rows under it."""

    text: str
    rows: tuple[tuple[str, str], ...]


FINDINGS = (
    Advice(
        "Give GraHTP a larger step than the theorems' 1/(2M): with that it finds a twentieth of the supports at the "
        "true k (simulated, nonzeros from N(3, 1)), with four times it half, ahead of forward selection. It "
        "is not shown to be ahead of FoBa under any reading.",
        (("grahtp-fig2", "c"), ("grahtp-fig2", "f"), ("grahtp-fig3", "a")),
    ),
    Advice(
        "On real data, none of them the paper's, forward selection, GraSP, FGraHTP or FoBa ends in a lower logistic "
        "loss than GraHTP in each of eleven pairs of data and k.",
        (("grahtp-fig4", "a"),),
    ),
    Advice(
        "HT-SVRG may have few inner steps between two full gradients, at a price: 100, 10 and 1 in place of 300 "
        "take 3.6, 41 and 190 times as many stages. With a step of 3, ten times the usual one, F grows from the "
        "first stages on.",
        (("tight-fig4", "b"), ("tight-fig4", "c")),
    ),
    Advice(
        "The duality gap of sparse ridge regression grows with the noise. A ridge that is large enough closes it: "
        "lam sqrt(N) = 100,000 in every draw at noise 0.1. Before that a larger ridge need not: with 30 features the "
        "gap is largest about lam sqrt(N) = 1.",
        (("diht-fig2", "a"), ("diht-fig2", "b"), ("diht-fig1", "a")),
    ),
    Advice(
        "On text, 20 Newsgroups in place of the paper's, DIHT and SDIHT end in a lower smoothed hinge loss than IHT, "
        "HTP and SVR-GHT at lam0 = 1 where there are more words than rows; where there are more rows, HTP is level "
        "with them or ahead.",
        (("diht-fig5-7", "a"),),
    ),
)
