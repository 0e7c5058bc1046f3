"""Compiled programs that a long-lived process can afford.

Every compiled program stays mapped in its process, and Linux limits the memory maps of a process (65,530 by default):
past that a compilation ends it with a segmentation fault. So the programs of this package's own functions, least
recently used ones first, are dropped before the maps run out; those that are called again are compiled again. Only
where that is not enough, since the maps belong to programs of others, are all of JAX's caches cleared.

On a CPU compiling is most of a first fit. So what makes it cheaper and programs no slower is always on, and a program
with so little work, as far as its equations tell, that a call loses some hundredths of a second by it, is compiled
without LLVM's optimisations: in less than half of the time. JAX takes such options outside its transformations only.
"""

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, overload

import jax

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # JAX before 0.10
    from jax.core import get_opaque_trace_state

from ._meshes import automatic_axes, on_automatic_axes
from ._store import kind, place, read, write
from ._uncollected import uncollected

R = TypeVar("R")

CPU_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 2}
PLAIN = {"xla_backend_optimization_level": 0}
LITTLE_WORK = 2**24  # numbers that a program makes, up to which it is compiled plainly
ROUNDS = 4  # of a loop whose number of rounds depends on the data
FREE = frozenset({"broadcast_in_dim", "reshape", "squeeze", "stop_gradient", "iota"})  # made where they are used
MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
SHARE = 0.19  # of the maps that the system allows
MOST_COMPILED = 400  # programs, where maps cannot be counted
EVERY = 16  # compilations between two counts

_programs: list["Program"] = []
_clock = itertools.count(1)


class _Compiled:
    """How many programs this process has compiled since the last count, and since the last drop."""

    since_count = 0
    since_drop = 0

    @classmethod
    def count(cls) -> None:
        cls.since_count += 1
        cls.since_drop += 1


def _on_duration(event: str, *_: Any, **__: Any) -> None:
    if event.endswith("backend_compile_duration"):
        _Compiled.count()


jax.monitoring.register_event_duration_secs_listener(_on_duration)


def _trace_state_of_a_new_thread() -> Any:
    states: list[Any] = []
    thread = threading.Thread(target=lambda: states.append(get_opaque_trace_state()))
    thread.start()
    thread.join()
    return states[0]


# What a program may depend on besides its arguments; settings of threads and contexts are read as they are there.
SETTINGS = tuple(
    name
    for name in jax.config.values
    if hasattr(jax.config, name) and not any(w in name for w in ("cache", "log", "dump"))
)


PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_platform = jax.make_user_context()


def traced_for(platform: str) -> AbstractContextManager[None]:
    """A context in which programs are traced for a platform, "cpu", "cuda", "rocm" or "tpu"; else it is JAX's default.

    Lanes of a batch and perturbed starts take turns on a CPU and run side by side elsewhere. Where a program will run
    JAX does not say while it is traced, so that what is exported for another machine is exported here:

        with traced_for("cuda"):
            exported = jax.export.export(jax.jit(fit), platforms=["cuda"])(objective)

    Answers are the same on every platform, whatever a program was traced for.
    """
    if platform not in PLATFORMS:
        raise ValueError(f"platform: {platform!r} is none of {', '.join(map(repr, PLATFORMS))}.")
    context: AbstractContextManager[None] = _platform(platform)
    return context


def platform() -> str:
    """The platform that programs are traced for."""
    return _platform.value or jax.default_backend()


def _settings() -> tuple[Any, ...]:
    return *(getattr(jax.config, name) for name in SETTINGS), platform()


OUTSIDE = _trace_state_of_a_new_thread()  # this module may be imported while a user's function is traced


@functools.cache
def compiler_options(backend: str) -> dict[str, Any] | None:
    """The options that programs are compiled with: those of `CPU_OPTIONS` that this version of XLA knows."""
    return {name: value for name, value in CPU_OPTIONS.items() if _known(name, value)} if backend == "cpu" else None


def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: None, compiler_options={name: value}).lower().compile()
    except (jax.errors.JaxRuntimeError, ValueError):
        return False
    return True


class Program:
    """A function of this package, compiled once for every kind of arguments, in this process or an earlier one.

    Inside JAX's transformations it is a plain `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.jitted: Any = jax.jit(function, **options)
        self.compiled: dict[Any, tuple[Any, Any]] = {}  # and the structure of what is returned
        self.last_use = 0
        functools.update_wrapper(self, function)
        self._signature = inspect.signature(function)
        names, numbers = options.get("static_argnames", ()), options.get("static_argnums", ())
        parameters = list(self._signature.parameters)
        self._static = [names] if isinstance(names, str) else list(names)
        self._static += [parameters[i] for i in ((numbers,) if isinstance(numbers, int) else numbers)]
        _programs.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A user's strictness is for a user's code.
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self.last_use = next(_clock)
        config: Any = jax.config
        outside, here = get_opaque_trace_state() == OUTSIDE, jax.sharding.get_abstract_mesh()
        if outside:
            args, kwargs = jax.tree.map(on_automatic_axes, (args, kwargs))
            if not here.empty:
                with automatic_axes():
                    return self.jitted(*args, **kwargs)
        plain = outside and here.empty
        if not plain or config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
            return self.jitted(*args, **kwargs)
        given = dict(self._signature.bind(*args, **kwargs).arguments)
        static = {name: given.pop(name) for name in self._static if name in given}
        leaves, structure = jax.tree.flatten(given)
        key = structure, tuple(map(kind, leaves)), tuple(static.items()), _settings()
        found = self.compiled.get(key)
        if found is None:
            found = self.compiled[key] = self._make(given, static, leaves, structure)
        executable, returned = found
        return jax.tree.unflatten(returned, executable(*leaves))

    def _make(self, given: dict[str, Any], static: dict[str, Any], leaves: list[Any], structure: Any) -> Any:
        """The program for such arguments, read where it is stored, else compiled and stored; and its structure."""
        function = self.__wrapped__  # type: ignore[attr-defined]
        path = place(function, given, static, (_settings(), CPU_OPTIONS))
        found = None if path is None else read(path)
        if found is not None:
            _Compiled.count()
            return found
        returned: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            bound = inspect.BoundArguments(self._signature, jax.tree.unflatten(structure, leaves) | static)
            result, tree = jax.tree.flatten(function(*bound.args, **bound.kwargs))
            returned.append(tree)
            return result

        flat.__name__ = function.__name__
        options = compiler_options(jax.default_backend())
        with uncollected():
            traced = jax.jit(flat).trace(*leaves)
            if options is not None and expected_work(traced.jaxpr.jaxpr) <= LITTLE_WORK:
                options = options | PLAIN
            compiled = traced.lower().compile(compiler_options=options)
        if path is not None:
            write(path, compiled, returned[-1])
        return compiled, returned[-1]

    def clear_cache(self) -> None:
        """Drop what was compiled."""
        self.jitted.clear_cache()
        self.compiled.clear()


def expected_work(jaxpr: Any) -> float:
    """About how many numbers a program makes: those that its equations return, or sum, sort and compare."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, values = equation.primitive.name, list(equation.outvars)
        inner = sum(map(expected_work, _inside(equation)))
        if inner:
            total += inner * (equation.params["length"] if name == "scan" else ROUNDS if name == "while" else 1)
        elif name not in FREE:
            values += equation.invars if name.startswith(("reduce_", "arg", "sort", "cum", "top_k")) else []
            total += max((getattr(value.aval, "size", 1) for value in values), default=0)
    return total


def _inside(equation: Any) -> Iterator[Any]:
    """The jaxprs that an equation runs."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(part, "jaxpr") or hasattr(part, "eqns"):
                yield getattr(part, "jaxpr", part)


@overload
def program(function: Callable[..., R], **options: Any) -> Callable[..., R]: ...
@overload
def program(**options: Any) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
def program(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`jax.jit`, plain or with options, for this package's functions."""
    return (lambda f: Program(f, **options)) if function is None else Program(function, **options)


def clear() -> None:
    """Drop all compiled programs of the process, JAX's too."""
    for each in _programs:
        each.clear_cache()
    jax.clear_caches()
    _Compiled.since_drop = 0


def make_room() -> None:
    """Drop programs if the process nears its limit; cheap where nothing was compiled."""
    if _Compiled.since_count < EVERY:
        return
    _Compiled.since_count = 0
    if not _crowded():
        return
    for each in sorted(_programs, key=lambda p: p.last_use):
        each.clear_cache()
        if MAPS.exists() and not _crowded():
            break
    else:
        if MAPS.exists():
            clear()
    _Compiled.since_drop = 0


def _crowded() -> bool:
    if not MAPS.exists():
        return _Compiled.since_drop > MOST_COMPILED
    try:
        limit = int(MOST_MAPS.read_text())
    except OSError:  # in some sandboxes
        limit = 65_530  # Linux's own
    return MAPS.read_bytes().count(b"\n") > SHARE * limit
