"""The command `ftsort`: sorts files, and answers questions about their order, on ranks that may fail.

Exit statuses: 0 the output is complete and checked; 1 failed; 2 wrong usage; 3 data were lost or are wrong; 4 no usable
MPI; 128 + S ended by signal S. docs/command.md has the reference.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import secrets
import signal
import sys
from typing import Any, Dict, List, NoReturn, Optional, Sequence

EPILOG = """exit statuses: 0 complete and checked; 1 failed; 2 wrong usage; 3 data were lost or are wrong; 4 no usable
MPI; 128 + S ended by signal S"""
MOST_KEYS = 64  # fields that decide the order; the library refuses more
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class WrongArguments(Exception):
    """The command line cannot be parsed."""


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that `--json` can have them."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and raises the error."""
        self.print_usage(sys.stderr)
        raise WrongArguments(message)


class Interrupted(Exception):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


#: Whether the output is getting its name, perhaps in place of the input. From then on a signal comes too late.
_is_committing = False


def _interrupt(number: int, _frame: Any) -> None:
    if _is_committing:
        return
    # A second signal must not stop the removal of temporary files.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


# ---- arguments ------------------------------------------------------------------------------------------------


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def _size(text: str) -> int:
    """Returns the bytes of a size such as `512M` or `4G`; the units are powers of 1024."""
    found = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)([KMGT]?)(?:I?B)?", text.strip().upper(), re.ASCII)
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a size: use for example 512M or 4G")
    return size


def _victims(text: str) -> str:
    if text not in ("half", "all-but-one", "one") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not half, one, all-but-one or a number")
    return text


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="the file to read")
    group = parser.add_argument_group("files")
    group.add_argument("--format", choices=("npy", "raw", "csv", "parquet"),
                       help="the format of the input (default: by its extension)")
    group.add_argument("--dtype", help="the type of raw rows, as f8 or id:i8,name:S12; for CSV, types of columns")
    group.add_argument("--delimiter", help="the delimiter of CSV columns (default: a comma, and a tab for .tsv)")


def _add_keys(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("order")
    group.add_argument("--key", action="append", default=[], metavar="FIELD[:asc|:desc]",
                       help="a field that decides the order; several: the first one decides, among equal rows the "
                       "second, and so on (default: all fields)")
    group.add_argument("--descending", action="store_true", help="descending order of all keys without a direction")


def _add_output(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("-o", "--output", type=_path, required=required,
                        help="the file to write; it appears when it is complete")
    parser.add_argument("--output-format", choices=("npy", "raw", "csv", "parquet"),
                        help="the format of the output (default: by its extension, else that of the input)")


def _add_external(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files larger than memory (.npy and raw)")
    group.add_argument("--external", action="store_true", help="sort by runs in scratch files, also if the file fits "
                       "into memory")
    group.add_argument("--memory", type=_size, metavar="SIZE", help="the memory of all ranks together, as 512M or "
                       "4G (default: the available memory); a file that needs more is sorted by runs")
    group.add_argument("--scratch", type=_path, action="append", default=[], metavar="DIR",
                       help="a directory for runs, which may be local to each host; may be repeated (default: the "
                       "directory of the output)")
    group.add_argument("--resume", action="store_true", help="continue a sort by runs that ended before it was "
                       "complete, or begin one")


def _add_display(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("display")
    group.add_argument("--json", action="store_true", help="print one JSON object for each event on standard output")
    group.add_argument("--progress", choices=("auto", "line", "plain", "failures", "none"), default="auto",
                       help="the display on standard error (default: line on a terminal, else failures)")


def _add_job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ranks")
    group.add_argument("-n", "--ranks", type=_positive, help="the number of ranks (default: the slots of the "
                       "allocation, else the processors)")
    group.add_argument("--store", choices=("memory", "reload", "directory", "none"), default="memory",
                       help="the redundancy of the data (default: memory)")
    group.add_argument("--replicas", type=_positive, default=1, help="copies of each share, with --store memory")
    group.add_argument("--store-directory", help="the directory of --store directory, which all ranks see")
    group.add_argument("--algorithm", default="auto", choices=(
        "auto", "samplesort", "samplesort_2", "samplesort_3", "hyperquicksort", "quickmerge", "quickmerge_modified",
        "bitonic"))
    group.add_argument("--attempts", type=_positive, default=3,
                       help="starts of mpirun if MPI itself fails (default: 3)")
    group.add_argument("--time-limit", type=_seconds, metavar="SECONDS", help="end the job after this time")
    group.add_argument("--mpirun-option", action="append", default=[], metavar="OPTION",
                       help="a further option of mpirun, as in --mpirun-option=--verbose")
    group = parser.add_argument_group("demonstration")
    group.add_argument("--chaos", type=_victims, metavar="half|one|N|all-but-one",
                       help="kill ranks with SIGKILL at random moments")
    group.add_argument("--chaos-seed", type=int, help="the seed of the random choices of --chaos")
    _add_display(parser)


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = _Parser(prog="ftsort", description="Sorts files on many ranks, and completes although ranks fail.",
                     epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the versions of ftsort and MPI")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=EPILOG)
        _add_input(command)
        return command

    for name, text in (("sort", "sort the rows of a file"),
                       ("argsort", "write the positions of the rows in sorted order"),
                       ("unique", "write the distinct rows or keys, each with the number of its rows")):
        command = add(name, text)
        _add_output(command, True)
        if name == "sort":
            _add_external(command)
        _add_keys(command)
        _add_job(command)
    command = add("quantiles", "print exact quantiles")
    command.add_argument("fractions", nargs="*", type=_fraction,
                         help="numbers from 0 to 1 (default: 0 0.25 0.5 0.75 1)")
    _add_keys(command)
    _add_job(command)
    command = add("top", "print or write the first rows of the sorted order")
    command.add_argument("-c", "--count", type=_positive, default=10, help="the number of rows (default: 10)")
    _add_output(command, False)
    _add_keys(command)
    _add_job(command)
    command = add("verify", "check the order of a file, and that two files hold the same rows")
    command.add_argument("other", nargs="?", type=_path, help="a file that should hold the same rows, in any order")
    _add_keys(command)
    _add_display(command)
    command = add("info", "print the format, the rows and the type of a file")
    command.add_argument("--json", action="store_true", help="print a JSON object")
    return parser


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments. Positional ones may be behind options, where argparse does not expect optional ones."""
    options, rest = parser.parse_known_args(arguments)
    if not any(word.startswith("-") for word in rest):
        try:
            if options.command == "verify" and options.other is None and rest:
                options.other = _path(rest.pop(0))
            elif options.command == "quantiles":
                options.fractions, rest = [*(options.fractions or []), *map(_fraction, rest)], []
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"argument {'other' if options.command == 'verify' else 'fractions'}: {error}")
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command is None and not options.version:
        parser.error("name a command, such as sort; --help lists them")
    return options


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command, and returns its exit status."""
    global _is_committing
    words = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Names of files and texts of rows can have any character.
    try:
        options = _parse(make_parser(), words)
    except WrongArguments as error:
        options = argparse.Namespace(json="--json" in words)
        return _report(options, _display(options), 2, str(error))
    if options.version:
        from . import tools
        return tools.versions()
    _is_committing = False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP, and that remains so.
            signal.signal(number, _interrupt)
    display = None
    try:
        display = _display(options)
        return _run(options, display)
    except Interrupted as error:
        return _report(options, display or _display(options), 128 + error.number, f"{error}: no output was written")


def _display(options: argparse.Namespace) -> Any:
    from . import progress

    return progress.make_display(getattr(options, "progress", "none"), options.json)


def _report(options: argparse.Namespace, display: Any, status: int, text: str) -> int:
    """Prints an error that ends the command, and returns its status."""
    display.error(text)
    if options.json:
        display.summary({"ok": False, "status": status, "message": text}, "")
    return status


def _run(options: argparse.Namespace, display: Any) -> int:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return _report(options, display, 4, "the command needs numpy: pip install numpy")
    from . import files, launch, run, tools

    try:
        if options.command == "info":
            return tools.info(options, display)
        if options.command == "verify":
            return tools.verify(options, display)
        return _job(options, display)
    except files.UsageError as error:
        status, text = run.USAGE, str(error)
    except files.FileError as error:
        status, text = run.FAILED, str(error)
    except run.Failed as error:
        status, text = error.status, str(error)
    except launch.NoMpi as error:
        status, text = run.NO_MPI, str(error)
    except BrokenPipeError:
        return 1
    except OSError as error:
        status, text = run.FAILED, f"{error.filename or options.input}: {files.reason(error)}"
    return _report(options, display, status, text)


def _victim_count(text: str, ranks: int) -> int:
    count = {"half": ranks // 2, "one": 1, "all-but-one": ranks - 1}.get(text)
    count = int(text) if count is None else count
    if count >= ranks:
        from .files import UsageError
        raise UsageError(f"--chaos {text}: at least one of the {ranks} ranks has to survive")
    return count


def _job(options: argparse.Namespace, display: Any) -> int:
    global _is_committing
    from . import check, external, files, launch, run, tools

    source = files.open_source(options.input, options.format, options.dtype, options.delimiter)
    keys = check.parse_keys(options.key, options.descending, source.dtype, options.input)
    if len(keys) > MOST_KEYS:
        raise files.UsageError(f"--key: {options.input} has {len(keys)} fields to sort by, but at most {MOST_KEYS} are "
                               "possible: name the fields that decide with --key")
    ranks = options.ranks or launch.default_ranks()
    launch.find_mpirun()
    if options.store == "directory" and not os.path.isdir(options.store_directory or ""):
        raise files.UsageError(f"--store-directory {options.store_directory or ''}: --store directory needs a "
                               "directory that all ranks can write to")
    path = getattr(options, "output", None)
    name = files.format_of(path, options.output_format, source.format) if path else "raw"
    dtype = tools.output_type(options.command, source.dtype)
    if name in ("csv", "parquet"):
        from . import tables
        tables.check_columns(dtype, path or "", name)
        tables.check_delimiter(options.delimiter)
        if options.command != "argsort" and isinstance(source, files.BinarySource):
            source.one_nan = True  # The order has to be that of the rows that the table holds.
    is_external = external.is_wanted(options, source, name)
    chaos = None
    if options.chaos:
        seed = secrets.randbits(16) if options.chaos_seed is None else options.chaos_seed
        chaos = run.Chaos(_victim_count(options.chaos, ranks), seed, ranks, source.bytes,
                          external.CHAOS if is_external else run.CHAOS)
        display.event("note", message=f"--chaos {options.chaos} --chaos-seed {seed}")
    output = run.Output(path, name, dtype, source.rows, options.delimiter) if not is_external else \
        external.ExternalOutput(path or "", name, dtype, source.rows, options, ranks)
    try:
        output.reset()
        if options.command in ("sort", "argsort"):
            output.check_space(source.rows)
        more: Dict[str, Any] = {
            "store": options.store, "replicas": options.replicas, "algorithm": options.algorithm,
            "store_directory": options.store_directory,
            "count": getattr(options, "count", 0),
            "fractions": getattr(options, "fractions", None) or [0.0, 0.25, 0.5, 0.75, 1.0],
        }
        if options.command == "quantiles" and source.rows == 0:
            raise run.Failed(f"{options.input} has no rows, so it has no quantiles")
        job = run.make_job(options.command, source, keys, output, **more)
        runner = run.Runner(job, source, ranks, display, attempts=options.attempts, chaos=chaos,
                            time_limit=options.time_limit, mpirun=options.mpirun_option)
        done = runner.run(output)
        rows: List[Any] = []
        if path is None:
            rows = tools.show_rows(output.source(done["rows"]), done["rows"], job, display)
        output.complete(done["rows"], display)
        _is_committing = True
        output.commit()
    except run.Failed as error:
        if error.status == run.WRONG:
            output.discard()
        raise
    except files.FileError:
        output.discard()  # The input changed after it was sorted, so no later command can continue this sort.
        raise
    finally:
        if output.has_new_state():
            display.event("note", message=f"the same command with --resume continues this sort of {path}")
        output.remove()
    tools.finish(options, source, runner, done, rows, display)
    return 0
