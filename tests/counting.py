"""How many programs are compiled."""

import jax

COMPILED = [0]


def listen(event, *_, **__):
    COMPILED[0] += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(listen)


def programs(function):
    """The number of programs that a call compiles."""
    before = COMPILED[0]
    function()
    return COMPILED[0] - before
