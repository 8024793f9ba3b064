"""Compares all places that have the launch settings with their source, cmake/ftsort-mca-params.conf."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import launch
import settings


class Settings(unittest.TestCase):
    def test_all_places_agree_with_the_source(self):
        self.assertEqual(settings.differences(), [])

    def test_the_source_has_settings(self):
        self.assertIn("coll_ftagree_era_topology", settings.settings())

    def test_launch_uses_the_settings(self):
        command = " ".join(launch.LAUNCH)
        for name, value in settings.settings().items():
            self.assertIn(f"--mca {name} {value}", command)

    def test_rust_sources_have_settings_or_include_the_source(self):
        self.assertNotEqual(settings.rust_settings(), {})

    def test_finds_a_changed_value_in_a_command(self):
        text = "env mpirun --with-ft ulfm --mca async_mpi_finalize 0 \\\n  --mca btl_tcp_flags send -np 8 ./program\n"
        self.assertEqual(settings.command_settings(text), [{"async_mpi_finalize": "0", "btl_tcp_flags": "send"}])

    def test_parses_comments_and_values_with_commas(self):
        self.assertEqual(settings.parse("# text\na = 1\nb = send,inplace # why\n\n"), {"a": "1", "b": "send,inplace"})


class Wrapper(unittest.TestCase):
    def environment_of_mpirun(self, **variables):
        """Returns the environment in which ftsort-mpirun starts mpirun."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "mpirun")
            program.write_text("#!/bin/sh\nexec env\n")
            program.chmod(0o755)
            base = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
            done = subprocess.run(["sh", settings.WRAPPER], env=dict(base, MPIRUN=str(program), **variables),
                                  capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def test_daemons_of_slurm_get_the_environment_and_do_not_wait_for_steps(self):
        found = self.environment_of_mpirun(SLURM_JOB_ID="1", SLURM_EXPORT_ENV="NONE")
        self.assertIn("SLURM_EXPORT_ENV=ALL", found)
        self.assertIn("SLURM_OVERLAP=1", found)

    def test_sets_no_variable_of_slurm_outside_an_allocation(self):
        self.assertFalse([line for line in self.environment_of_mpirun() if line.startswith("SLURM_")])


if __name__ == "__main__":
    unittest.main()
