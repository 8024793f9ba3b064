"""The Spack recipe of ftsort; docs/packages.md shows its use."""

import os

from spack.package import *


class Ftsort(CMakePackage):
    """A distributed sort for MPI programs that completes although processes fail."""

    homepage = "https://docs.rs/ftsort"
    # The archive of `make dist` has the sources of all crates, so that the build needs no network.
    url = "ftsort-0.2.0.tar.gz"

    maintainers("ftsort")
    license("MIT")

    version("0.2.0")

    variant("fault_tolerance", default=True, description="Require an MPI library with ULFM")
    variant("fortran", default=False, description="Build the Fortran module")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.16:", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("llvm+clang", type="build")
    depends_on("python@3.8:", type="build")
    depends_on("mpi")
    depends_on("openmpi@5:", when="+fault_tolerance")

    def setup_build_environment(self, env):
        env.set("FTSORT_ULFM", "on" if self.spec.satisfies("+fault_tolerance") else "off")
        # An external LLVM has the library below lib/llvm-N/lib of its prefix.
        libclang = find_libraries("libclang", self.spec["llvm"].prefix, shared=True, recursive=True)
        env.set("LIBCLANG_PATH", libclang.directories[0])

    def cmake_args(self):
        return [
            self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc),
            self.define("FTSORT_EXAMPLES", False),
            self.define_from_variant("FTSORT_FORTRAN", "fortran"),
        ]

    def test_installed_example(self):
        """Compiles the installed example, and sorts on two ranks."""
        source = join_path(self.prefix.share, "ftsort", "examples", "languages", "hello.c")
        compiler = which(self.spec["mpi"].prefix.bin.mpicc)
        compiler(source, "-o", "hello", f"-I{self.prefix.include}", f"-L{self.prefix.lib}",
                 f"-Wl,-rpath,{self.prefix.lib}", "-lftsort")
        launcher = which(join_path(self.prefix.bin, "ftsort-mpirun"))
        launcher.add_default_env("PATH", os.pathsep.join([self.spec["mpi"].prefix.bin, os.environ["PATH"]]))
        output = launcher("--oversubscribe", "-np", "2", "./hello", output=str.split, error=str.split)
        assert output.count("in order") == 2, output
