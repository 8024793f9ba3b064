"""Draws all figures of the scripts with matplotlib, in one style, and writes pages that show them.

numpy and matplotlib are those of this Python. If it lacks them, the first import of this module makes a virtual
environment in the environment folder, installs them there, and starts the program again with its Python.

An SVG file has a background of its own, and it follows the colour scheme of the reader (light or dark). Texts stay
texts in it, and the same figure gives the same bytes.
"""

import html
import importlib.util
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDED = ["numpy>=1.26,<3", "matplotlib>=3.8,<4"]


def ensure():
    """Returns if numpy and matplotlib can be imported; else starts this program again with a Python that has them."""
    if all(importlib.util.find_spec(name) for name in ("numpy", "matplotlib")):
        return
    folder = pathlib.Path(os.environ.get("FTSORT_ENV_DIR", ROOT / ".env")).absolute() / "plots"
    python = folder / "bin" / "python3"
    ready = folder / "ready"
    if pathlib.Path(sys.prefix) == folder or not ready.exists():
        print("fetching numpy and matplotlib ...", file=sys.stderr)
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDED],
                           check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"numpy and matplotlib are needed and cannot be installed in {folder}: {error}")
        ready.touch()
    os.execv(python, [python, *sys.argv])


ensure()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402
import numpy  # noqa: E402

INK, PAPER, GRID = "#1f2328", "#ffffff", "#d8dee4"
DARK = {INK: "#e6edf3", PAPER: "#0d1117", GRID: "#30363d"}
# Each has a contrast of at least 3 to both backgrounds.
BLUE, ORANGE, GREEN, PURPLE, RED, GREY, TEAL, PINK = COLOURS = [
    "#2f81c7", "#d9730d", "#2c974b", "#8e6bd1", "#d1434b", "#7d858e", "#1a9a9a", "#c4508f",
]
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "ftsort",
    "font.family": "DejaVu Sans", "font.size": 10,
    "figure.facecolor": PAPER, "savefig.facecolor": PAPER, "axes.facecolor": PAPER,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS), "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.titlelocation": "left",
    "grid.color": GRID, "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 5,
    "legend.frameon": False, "legend.fontsize": 9, "figure.constrained_layout.use": True,
})


def axes(across, up, title="", size=(6.8, 4.0), **more):
    """Returns a new figure and its axes. `more`: further properties, such as yscale="log"."""
    figure, drawn = pyplot.subplots(figsize=size)
    drawn.set(xlabel=across, ylabel=up, title=title, **more)
    return figure, drawn


def lines(drawn, series, **more):
    """Draws a line with markers for each (label, points) that has a point."""
    for label, points in series:
        if points:
            drawn.plot(*zip(*points), marker="o", label=label, **more)


def grouped_bars(drawn, labels, series, **more):
    """Draws groups of bars: one group for each label, one bar in it for each (name, heights)."""
    width = 0.8 / len(series)
    places = numpy.arange(len(labels))
    for index, (name, heights) in enumerate(series):
        drawn.bar(places + width * (index - (len(series) - 1) / 2), heights, width, label=name, **more)
    drawn.set_xticks(places, labels)
    drawn.grid(axis="x", visible=False)


def powers_of_two(axis, values, text="{}"):
    """Puts ticks at powers of two on a logarithmic axis."""
    axis.set_major_locator(matplotlib.ticker.FixedLocator(values))
    axis.set_major_formatter(matplotlib.ticker.FixedFormatter([text.format(value) for value in values]))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def dark_style():
    """Returns a style element that replaces the colours of this module if the reader prefers dark pages."""
    rules = [f'[style*="{name}: {light}"]{{{name}:{dark} !important}}'
             for light, dark in DARK.items() for name in ("fill", "stroke")]
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def save(figure, folder, name, png=True):
    """Writes a figure as SVG, and as PNG too unless `png` is False."""
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    text = text.replace("font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, sans-serif")
    head = text.index("<defs>")
    path.write_text(text[:head] + dark_style() + "\n " + text[head:], encoding="utf-8")
    if png:
        figure.savefig(folder / f"{name}.png", dpi=120)
    # matplotlib keeps a figure until it is closed.
    pyplot.close(figure)


STYLE = ("body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color-scheme:light dark}"
         "img{max-width:100%}h2{font-size:16px}table{border-collapse:collapse;font-size:.9em}"
         "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #8888}")


class Page:
    """A page of figures, texts and tables: index.html in a folder."""

    def __init__(self, folder, title, introduction=""):
        self.folder = folder
        self.parts = [f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>",
                      f"<h1>{html.escape(title)}</h1>"]
        if introduction:
            self.text(introduction)

    def heading(self, text):
        self.parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text):
        self.parts.append(f"<p>{html.escape(text)}</p>")

    def image(self, name, sentence):
        """Shows a figure that is in the folder already, under a sentence."""
        self.heading(sentence)
        self.parts.append(f"<img src='{name}.svg' alt=''>")

    def figure(self, figure, name, sentence, legend=True):
        """Writes a figure and shows it."""
        if legend:
            figure.axes[0].legend()
        save(figure, self.folder, name)
        self.image(name, sentence)

    def table(self, header, rows):
        row = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}" for cell in cells)
        self.parts.append("<table>" + row("th", header) + "".join(row("td", cells) for cells in rows) + "</table>")

    def links(self, names):
        """Lists files of the folder."""
        self.parts.append("<p>" + ", ".join(f"<a href='{name}'>{name}</a>" for name in names) + "</p>")

    def write(self):
        """Writes index.html, and returns its path."""
        path = self.folder / "index.html"
        path.write_text("\n".join(self.parts), encoding="utf-8")
        return path
