"""numpy and matplotlib for the scripts that draw: those of this Python, or else in a virtual environment
in the environment folder, which is made when it is first needed."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDED = ["numpy>=1.26,<3", "matplotlib>=3.8,<4"]


def ensure():
    """Returns if both can be imported; else starts this program again with a Python that has them."""
    if all(importlib.util.find_spec(name) for name in ("numpy", "matplotlib")):
        return
    folder = pathlib.Path(os.environ.get("FTSORT_ENV_DIR", ROOT / ".env")) / "plots"
    python = folder / "bin" / "python3"
    ready = folder / "ready"
    if pathlib.Path(sys.prefix) == folder or not ready.exists():
        print("fetching numpy and matplotlib ...", file=sys.stderr)
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDED],
                           check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"numpy and matplotlib are needed and cannot be fetched: {error}")
        ready.touch()
    os.execv(python, [python, *sys.argv])


def save(figure, folder, name):
    """Writes a figure as SVG and PNG."""
    figure.savefig(folder / f"{name}.svg")
    figure.savefig(folder / f"{name}.png", dpi=120)
    # Unless it is closed matplotlib keeps it.
    import matplotlib.pyplot

    matplotlib.pyplot.close(figure)
