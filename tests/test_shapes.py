"""That annotated shapes are checked while tests run."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

import sparsehtp as sht
from sparsehtp.objectives.likelihood import MeanLoss


def test_another_shape_is_refused():
    loss, eta = sht.losses.Squared(), jnp.zeros(3)
    assert loss.value(eta, eta).shape == (3,)
    with pytest.raises(TypeCheckError, match=r"parameter 'y'(.|\n)*f32\[4\]"):
        loss.value(eta, jnp.zeros(4))
    with pytest.raises(TypeCheckError, match="parameter 'y'"):
        loss.value(eta, jnp.zeros(3, jnp.int32))


def test_another_shape_of_the_result_is_refused():
    class OneColumn(sht.losses.Squared):
        def value(self, eta, y):
            return eta[:, None]

    with pytest.raises(TypeCheckError, match=r"return value(.|\n)*f32\[1\]"):
        MeanLoss(OneColumn(), jnp.zeros(3), jnp.ones(3)).value(jnp.zeros(3))
