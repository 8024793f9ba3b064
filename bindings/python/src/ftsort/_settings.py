"""Settings of Open MPI for fault tolerance, which MPI reads when it starts.

This module never imports mpi4py: importing ``mpi4py.MPI`` starts MPI, and the settings must be in place before.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import Dict


def settings() -> Dict[str, str]:
    """Returns the parameters of Open MPI by name, from the parameter file of the package."""
    text = (pathlib.Path(__file__).parent / "ftsort-mca-params.conf").read_text(encoding="utf-8")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if line)
    return {name.strip(): value.strip() for name, value in pairs}


def mpi_started() -> bool:
    """Returns whether mpi4py has initialised MPI in this process."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())


def prepare() -> bool:
    """Sets the environment variables of Open MPI that fault tolerance needs and that are not set yet. [local]

    ``import ftsort`` calls this function, so a program imports ftsort before ``mpi4py.MPI``. ``ftsort-mpirun``
    sets the same variables from outside, and the order of the imports is of no importance then. The function
    does in Python what ``ftsort_prepare`` does in C: the C library cannot be loaded before the MPI library, and
    mpi4py chooses the MPI library.

    Returns
    -------
    bool
        False if MPI is initialised already, and nothing was set. A group then logs a warning for each variable
        that is missing.

    Examples
    --------
    >>> import ftsort
    >>> ftsort.prepare()      # here MPI runs already
    False
    """
    if mpi_started():
        return False
    for name, value in settings().items():
        os.environ.setdefault(f"OMPI_MCA_{name}", value)
    # A TCP connection to a failed process raises SIGPIPE. Python ignores the signal unless the program changed that.
    if signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        except ValueError:
            pass  # Only the main thread may change it.
    return True
