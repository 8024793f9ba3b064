"""Puts the C library into the wheel. The wheel has a platform, and is for every version of Python 3."""

import os
import pathlib
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Takes the library from $FTSORT_WHEEL_LIBRARY, so that the source folder has no copy that can grow old."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        library = os.environ.get("FTSORT_WHEEL_LIBRARY", "")
        if not pathlib.Path(library).is_file():
            raise SystemExit(f"FTSORT_WHEEL_LIBRARY is {library!r}, which is no file: build the wheel with `make wheel`")
        build_data["force_include"][library] = "ftsort/libftsort.so"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
