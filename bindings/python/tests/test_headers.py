"""The structs, numbers and options of the package are those of the C headers."""

import ctypes
import inspect
import pathlib
import re
import sys
import types

import pytest

import ftsort
from ftsort import _config, _errors, _native

SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"
sys.path.insert(0, str(SCRIPTS))
header_api = pytest.importorskip("header_api", reason="the tests are outside of the repository")

KINDS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
         "size_t": ctypes.c_size_t, "double": ctypes.c_double}
ITEMS = {item.name: item for header in header_api.headers() for item in header.items}
STRUCTS = [value for value in vars(_native).values()
           if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure]


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structs(struct):
    members = [(name, kind if kind in KINDS.values() else "pointer") for name, kind in struct._fields_]
    assert members == [(member.name, KINDS.get(member.declaration.split()[0], "pointer"))
                       for member in ITEMS[f"ftsort_{snake(struct.__name__)}"].members]


def numbers(enum, prefix):
    """Returns the numbers of an enum by the rest of their names."""
    pairs = (member.declaration.split(" = ") for member in ITEMS[enum].members)
    return {name[len(prefix):].lower(): int(number) for name, number in pairs if name.startswith(prefix)}


def test_numbers_of_names():
    assert _config.ALGORITHMS == numbers("ftsort_algorithm", "FTSORT_")
    assert _config.STORES == numbers("ftsort_store", "FTSORT_STORE_")
    assert _config.PIVOTS == numbers("ftsort_pivot", "FTSORT_PIVOT_")
    assert _config.REPAIRS == numbers("ftsort_repair", "FTSORT_REPAIR_")
    assert _config.CHECKS == numbers("ftsort_check", "FTSORT_CHECK_")
    assert {kind.name.lower(): kind.value for kind in ftsort.EventKind} == numbers("ftsort_event_kind", "FTSORT_EVENT_")
    names = {status: snake(re.sub("(Error|Limit|ion)$", "", cls.__name__)) for status, cls in _errors._CLASSES.items()}
    assert names == {status: name for name, status in numbers("ftsort_status_code", "FTSORT_ERR_").items()}


#: A value of each option, and the member that it sets.
OPTIONS = {
    "store": ("parity", 4), "replicas": (2, 2), "parity": (3, 3), "parity_group": (4, 4), "algorithm": ("bitonic", 4),
    "pivot": ("paper", 1), "repair": ("shrink", 1), "dense": (True, 1), "memory_limit": (2**40, 2**40),
    "timeout": (0.25, 250), "threads": (5, 5), "store_directory": ("/store", b"/store"), "store_sync": (True, 1),
    "checks": (["digest", "purity"], 17), "min_survivors": (6, 6), "spares": (7, 7), "release_after_run": (True, 1),
    "group_access": (True, 1), "trace": ("/trace", b"/trace"), "faults": ("1@2", b"1@2"), "keep_comm": (True, 1),
}


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def test_options_set_the_members_of_the_configuration():
    parameters = inspect.signature(ftsort.Group.__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name not in ("self", "comm")}
    assert OPTIONS.keys() | {"reload", "on_event", "accept_no_ulfm"} == defaults.keys()
    functions = {"reload": _native.RELOAD_FN(lambda *_: 0), "on_event": _native.EVENT_FN(print),
                 "on_log": _native.LOG_FN(print)}
    callbacks = types.SimpleNamespace(reload_fn=functions["reload"], event_fn=functions["on_event"],
                                      log_fn=functions["on_log"])

    def members(accept_no_ulfm=False, **options):
        made = _config.make_config(callbacks, accept_no_ulfm, {**defaults, **options})
        return {name: address(getattr(made, name)) if name in functions else getattr(made, name)
                for name, _ in made._fields_}

    unset, addresses = members(), {name: address(function) for name, function in functions.items()}
    assert {name: value for name, value in unset.items() if value} == {"struct_size": ctypes.sizeof(_native.Config),
                                                                      **addresses}
    for option, (value, expected) in OPTIONS.items():
        member = {"timeout": "timeout_ms"}.get(option, option)
        assert members(**{option: value}) == {**unset, member: expected}, option
    assert members(accept_no_ulfm=True) == {**unset, "accept_no_ulfm": 1}
