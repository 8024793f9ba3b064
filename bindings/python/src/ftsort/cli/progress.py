"""Shows the progress of a job: one updated line on a terminal, lines of text, or JSON objects."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any, Dict, List, Optional, Set, TextIO

# The phases of a job, and the share of the time that each takes, for the estimate of the end.
PHASES = {"read": 0.15, "sort": 0.45, "write": 0.2, "check": 0.17, "convert": 0.03}
EXTERNAL_PHASES = {"runs": 0.4, "merge": 0.43, "check": 0.17}
TITLES = {"start": "starting", "read": "reading", "sort": "sorting", "write": "writing", "check": "checking",
          "convert": "converting", "runs": "making runs", "merge": "merging"}
BAR = 20
REDRAW = 0.1


def amount(count: float) -> str:
    """Returns a number of bytes with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            break
        count /= 1000
    else:
        unit = "TB"
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """Returns a time as `12 s` or `3:05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


class State:
    """The state of the job, from its events."""

    def __init__(self) -> None:
        self.start = self.began = time.monotonic()
        self.ranks, self.rows, self.bytes = 0, 0, 0
        self.phase, self.round, self.rounds, self.moved = "start", 0, 0, 0
        self.phases = PHASES
        self.failed: Set[int] = set()
        self.recovered = self.replayed = 0

    def seconds(self) -> float:
        """Returns the seconds since the start of the command."""
        return time.monotonic() - self.start

    def take(self, event: Dict[str, Any]) -> Optional[str]:
        """Takes in an event; returns a line of text about it, or None."""
        kind = event["event"]
        if kind == "start":
            self.ranks, self.rows, self.bytes = event["ranks"], event["rows"], event["bytes"]
            self.failed, self.phase, self.moved = set(), "start", 0
            self.phases = EXTERNAL_PHASES if event.get("external") else PHASES
            return (f"{event['command']} {event['input']}: {self.rows:,} rows, {amount(self.bytes)}, on {self.ranks} "
                    "ranks")
        if kind == "phase":
            if self.phase == "start":
                self.began = time.monotonic()
            self.phase, self.moved, self.round = event["phase"], 0, 0
            return TITLES[self.phase]
        if kind == "progress":
            self.moved = event["bytes"]
        if kind == "round":
            self.round, self.rounds = event["round"] + 1, event["rounds"]
            return f"round {self.round} of {self.rounds} committed"
        if kind == "failure":
            self.failed.add(event["rank"])
            return f"rank {event['rank']} failed; {event['alive']} of {self.ranks} ranks go on"
        if kind == "executor":
            return f"rank {event['rank']} takes over the part of rank {event['node']}"
        if kind == "restored":
            self.recovered += 1
            return f"rank {event['rank']} restored the block of rank {event['node']} from {event['origin']}"
        if kind == "reread":
            self.recovered += 1
            return f"rank {event['rank']} reads the share of rank {event['owner']} from the file again"
        if kind == "replay":
            self.replayed += 1
            return f"round {event['round'] + 1} is replayed"
        if kind == "chaos":
            return f"--chaos kills rank {event['rank']} with SIGKILL"
        if kind == "retry":
            return f"attempt {event['attempt']}: {event['reason']}"
        return str(event["message"]) if kind == "note" else None

    def fraction(self) -> float:
        """Returns the share of the work that is done, by the usual durations of the phases."""
        done = 0.0
        if self.phase == "start":
            return done
        for phase, share in self.phases.items():
            if phase == self.phase:
                part = self.round / self.rounds if phase == "sort" and self.rounds else 0.0
                if phase != "sort" and self.bytes:
                    part = self.moved / (self.bytes * (2 if phase == "check" else 1))
                return done + share * min(1.0, part)
            done += share
        return done

    def line(self, width: int) -> str:
        """Returns the status line, cut to `width` characters."""
        share = self.fraction()
        bar = "#" * int(BAR * share)
        parts = [f"{TITLES[self.phase]:<10} [{bar:.<{BAR}}] {share:4.0%}"]
        seconds = time.monotonic() - self.began  # without the start of MPI
        if self.phase == "sort":
            parts.append(f"{amount(self.bytes)}, round {self.round}/{self.rounds}" if self.rounds else
                         amount(self.bytes))
        elif self.phase != "start":
            parts.append(f"{amount(self.moved)}")
        alive = self.ranks - len(self.failed)
        failures = f" ({len(self.failed)} failed, {self.recovered} recovered)" if self.failed else ""
        parts.append(f"ranks {alive}/{self.ranks}{failures}")
        if share > 0.1 and seconds > 0:
            parts.append(f"{amount(self.bytes * share / seconds)}/s")
            parts.append(f"{duration(seconds * (1 - share) / share)} left")
        return "  ".join(parts)[:width]


class Display:
    """Base of the displays; shows nothing but errors, and failures of ranks unless it is quiet."""

    SHOWN = ("failure", "retry", "note")

    def __init__(self, quiet: bool = False, stream: Optional[TextIO] = None) -> None:
        self.state, self.quiet = State(), quiet
        self.stream = stream or sys.stderr

    def event(self, kind: str, **members: Any) -> None:
        """Takes in an event and shows it."""
        event = {"event": kind, "seconds": round(self.state.seconds(), 3), **members}
        text = self.state.take(event)
        self.show(event, text)

    def show(self, event: Dict[str, Any], text: Optional[str]) -> None:
        """Shows an event."""
        if text and not self.quiet and event["event"] in self.SHOWN:
            self.write(f"ftsort: {text}")

    def write(self, text: str) -> None:
        """Writes a line of text."""
        print(text, file=self.stream, flush=True)

    def tick(self) -> None:
        """Is called about ten times a second."""

    def error(self, text: str) -> None:
        """Shows the error with which the command ends."""
        self.clear()
        self.write(f"ftsort: error: {text}")

    def summary(self, members: Dict[str, Any], text: str) -> None:
        """Shows the end of a successful command."""
        self.clear()

    def rows(self, lines: List[str]) -> None:
        """Prints a table on standard output."""
        self.clear()
        print("\n".join(lines), flush=True)

    def clear(self) -> None:
        """Removes a status line."""


class PlainDisplay(Display):
    """Prints a line of text for each event."""

    def show(self, event: Dict[str, Any], text: Optional[str]) -> None:
        """Shows an event."""
        if text:
            self.write(f"{event['seconds']:8.2f} s  {text}")

    def summary(self, members: Dict[str, Any], text: str) -> None:
        """Shows the end of a successful command."""
        self.write(f"{self.state.seconds():8.2f} s  {text}")


class TerminalDisplay(Display):
    """Keeps one status line, and prints failures and recoveries above it."""

    COLOURS = {"failure": "31", "chaos": "35", "executor": "33", "restored": "32", "reread": "32", "replay": "33",
               "retry": "31", "note": "33", "start": "0"}

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        super().__init__(False, stream)
        self.drawn, self.next = False, 0.0

    def show(self, event: Dict[str, Any], text: Optional[str]) -> None:
        """Shows an event."""
        colour = self.COLOURS.get(event["event"])
        if text and colour:
            self.clear()
            self.write(f"{event['seconds']:8.2f} s  \x1b[{colour}m{text}\x1b[0m")
            self.next = 0.0
        self.tick()

    def tick(self) -> None:
        """Draws the status line again if it is time."""
        now = time.monotonic()
        if now >= self.next and self.state.ranks:
            self.next = now + REDRAW
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\x1b[K{self.state.line(width)}")
            self.stream.flush()
            self.drawn = True

    def clear(self) -> None:
        """Removes the status line."""
        if self.drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.drawn = False

    def summary(self, members: Dict[str, Any], text: str) -> None:
        """Shows the end of a successful command."""
        self.clear()
        self.write(text)


class JsonDisplay(Display):
    """Prints one JSON object for each event on standard output; the last one is the summary."""

    def __init__(self) -> None:
        super().__init__(True)
        self.status_sent = False

    def put(self, event: Dict[str, Any]) -> None:
        """Prints an object."""
        print(json.dumps(event), flush=True)

    def show(self, event: Dict[str, Any], text: Optional[str]) -> None:
        """Shows an event."""
        self.put(event)

    def error(self, text: str) -> None:
        """Shows the error with which the command ends."""
        self.put({"event": "error", "seconds": round(self.state.seconds(), 3), "message": text})

    def summary(self, members: Dict[str, Any], text: str) -> None:
        """Shows the end of the command."""
        self.put({"event": "summary", "seconds": round(self.state.seconds(), 3), **members})

    def rows(self, lines: List[str]) -> None:
        """Prints no table: the summary has the rows."""


def make_display(style: str, as_json: bool) -> Display:
    """Returns the display for `--progress` and `--json`."""
    if as_json:
        return JsonDisplay()
    if style == "auto":
        style = "line" if sys.stderr.isatty() else "failures"
    if style == "line":
        return TerminalDisplay()
    return PlainDisplay() if style == "plain" else Display(quiet=style == "none")
