"""Reads and writes tables: CSV files, Markdown and lines of aligned text.

Lines of a CSV file that start with "#" are comments. The first one of a file under docs/data says which command
made it.
"""

import csv
import io


def number(text):
    """Returns a cell as a number or a truth value if it is one; None if it is empty."""
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text, text)


def parse(text):
    """Returns the rows of a CSV text: one dictionary of strings for each."""
    return list(csv.DictReader(io.StringIO("".join(line for line in text.splitlines(True) if line[0] != "#"))))


def read(path):
    """Returns the rows of a CSV file as dictionaries of strings; none if there is no such file."""
    return parse(path.read_text(encoding="utf-8")) if path.exists() else []


def read_numbers(path):
    """Returns the rows of a CSV file as dictionaries of numbers, where the cells are numbers."""
    return [{name: number(cell) for name, cell in row.items()} for row in parse(path.read_text(encoding="utf-8"))]


def comment_of(path):
    """Returns the comment lines at the start of a CSV file, without their marks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))


class Appender:
    """A CSV file that grows row by row. `rows` has all rows, those of earlier runs among them.

    The rows are in the file as soon as `add` returns, so that a run can be stopped and continued.
    """

    def __init__(self, path, fields, fresh=False, comment=None):
        self.rows = [] if fresh else read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a" if self.rows else "w", newline="", encoding="utf-8")
        self.writer = csv.DictWriter(self.file, fields, lineterminator="\n")
        if not self.rows:
            if comment:
                self.file.write(f"# {comment}\n")
            self.writer.writeheader()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def add(self, *rows):
        """Appends rows, all of them at once."""
        self.writer.writerows(rows)
        self.file.flush()
        self.rows += [{name: str(value) for name, value in row.items()} for row in rows]


def write(path, rows, comment=None):
    """Writes dictionaries with the same keys to a CSV file."""
    with Appender(path, list(rows[0]), fresh=True, comment=comment) as file:
        file.add(*rows)


def chosen(rows, **values):
    """Returns the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def markdown(header, rows, align=None):
    """Returns a table in Markdown. `align`: the second line's cells; default: left."""
    lines = [f"| {' | '.join(map(str, header))} |", f"|{'|'.join(align or ['---'] * len(header))}|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines)
