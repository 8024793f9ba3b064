"""Programs of the package registry that only a few measurements need: installed below target/tools when first used."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "tools"


def installed(name, version):
    """Returns the path of a cargo program, after installing it if it is missing."""
    program = FOLDER / "bin" / name
    if not program.exists():
        subprocess.run(["cargo", "install", "--locked", "--root", FOLDER, "--target-dir", FOLDER / "build",
                        "--version", version, name], check=True)
    return program
