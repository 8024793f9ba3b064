"""Compares all places that have the launch settings with their source, cmake/ftsort-mca-params.conf."""

import pathlib
import sys
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


if __name__ == "__main__":
    unittest.main()
