"""The generated files follow the headers, the binary interface is the recorded one, and Python has every function."""

import pathlib
import re
import subprocess
import sys
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))

import abi  # noqa: E402
import fortran  # noqa: E402
import header_api  # noqa: E402

PACKAGE = header_api.ROOT / "bindings" / "python" / "src" / "ftsort"

MPI_OF_PYTHON = "mpi4py starts MPI, and the package sets the environment when it is imported"
LOOPS = "a loop of the caller in Python keeps its arrays, and uses agree and fault_check"
CALLBACKS = "callbacks of rounds and trees run for every message, which is work for compiled programs"
MONITORS = "monitors are meant for long runs of compiled programs"
NODES = "the numbers of nodes are needed only by loops over the hypercube"

#: Functions that Python does not have, and the reason.
NOT_IN_PYTHON = {
    "ftsort_sort": "Group.sort has the same effect",
    "ftsort_record_of_type": "types of NumPy describe the records",
    "ftsort_group_of": "a group of Python belongs to its `with` block, not to a communicator",
    "ftsort_prepare": MPI_OF_PYTHON,
    "ftsort_comm_rank": "the communicator of mpi4py translates ranks",
    "ftsort_result_columns": "the call that makes a Result determines its columns",
    "ftsort_result_of_array": "Result.verify checks results of this package; arrays are checked with NumPy",
    "ftsort_store_open": LOOPS, "ftsort_store_put": LOOPS, "ftsort_store_get": LOOPS, "ftsort_store_commit": LOOPS, "ftsort_store_clear": LOOPS,
    "ftsort_inject": LOOPS,
    "ftsort_run_stored": "names of stored states are for loops of compiled programs; Group.external_sort has `resume`",
    "ftsort_dimension": NODES, "ftsort_partner": NODES, "ftsort_cluster": NODES,
    "ftsort_buffer_resize": "ftsort_buffer_append fills the buffers of `reload`",
    "ftsort_buffer_pass": CALLBACKS, "ftsort_buffer_reuse": CALLBACKS, "ftsort_rounds_run": CALLBACKS,
    "ftsort_rounds_simulate": CALLBACKS, "ftsort_tree_merge": CALLBACKS, "ftsort_tree_broadcast": CALLBACKS,
    "ftsort_tree_share": CALLBACKS, "ftsort_tree_get_info": CALLBACKS,
    "ftsort_monitor_start": MONITORS, "ftsort_monitor_stop": MONITORS, "ftsort_monitor_get_view": MONITORS,
    "ftsort_monitor_cost": MONITORS,
}


def functions():
    return [item.name for header in header_api.headers() for item in header.of_kind("function")]


class Generated(unittest.TestCase):
    def test_the_fortran_module_follows_the_headers(self):
        for path, text in fortran.made().items():
            self.assertEqual(path.read_text(), text, f"{path.name} is old: run scripts/fortran.py")

    def test_every_number_of_the_headers_is_a_fortran_constant(self):
        module = (header_api.ROOT / "bindings/fortran/ftsort.f90").read_text()
        for path in header_api.INCLUDE.glob("*.h"):
            for name, value in re.findall(r"^#define (FTSORT_\w+) (\d+|UINT32_MAX)\b", path.read_text(), re.M):
                self.assertRegex(module, rf"parameter :: {name} = {value.replace('UINT32_MAX', '-1')}\n")

    def test_every_function_has_a_fortran_interface(self):
        module = (header_api.ROOT / "bindings/fortran/ftsort.f90").read_text()
        for name in functions():
            self.assertRegex(module, rf'name="{name.replace("ftsort_", "ftsort_(fortran_)?", 1)}"')


class BinaryInterface(unittest.TestCase):
    RECORDED = ["function int f(int a)", "struct s: 16 bytes", "  s.struct_size: offset 0, 8 bytes", "struct t: 8 bytes"]

    def test_it_is_the_recorded_one(self):
        done = subprocess.run([sys.executable, str(SCRIPTS / "abi.py")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_additions_and_growing_structs_keep_programs_running(self):
        grown = [line.replace("struct s: 16", "struct s: 24") for line in self.RECORDED]
        self.assertEqual(abi.broken(self.RECORDED, [*grown, "function int g(void)"]), [])

    def test_a_member_in_the_padding_of_a_struct_breaks_programs(self):
        recorded = ["struct s: 16 bytes", "  s.struct_size: offset 0, 8 bytes", "  s.flag: offset 8, 4 bytes"]
        padded, appended = "  s.more: offset 12, 4 bytes", "  s.more: offset 16, 8 bytes"
        self.assertEqual(abi.broken(recorded, [*recorded, padded]), [padded])
        grown = [line.replace("16 bytes", "24 bytes") for line in recorded]
        self.assertEqual(abi.broken(recorded, [*grown, appended]), [])
        self.assertEqual(abi.broken(recorded, [*grown, padded, appended.replace("more", "last")]), [padded])

    def test_changes_break_programs(self):
        for index, line in enumerate(self.RECORDED):
            if line.startswith("struct s"):
                continue
            changed = [*self.RECORDED[:index], line.replace("8 bytes", "4 bytes").replace("int a", "long a"),
                       *self.RECORDED[index + 1:]]
            self.assertEqual(abi.broken(self.RECORDED, changed), [line])


class Python(unittest.TestCase):
    def test_every_function_is_called_or_has_a_reason(self):
        called = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
        bound = set(re.findall(r'\("(ftsort_\w+)", ', (PACKAGE / "_native.py").read_text()))
        known = set(functions())
        self.assertEqual(bound | NOT_IN_PYTHON.keys(), known)
        self.assertEqual(bound & NOT_IN_PYTHON.keys(), set())
        for name in bound:
            is_called = re.search(rf"\.{name.removeprefix('ftsort_')}\b", called)
            self.assertTrue(is_called, f"the package does not call {name}")


if __name__ == "__main__":
    unittest.main()
