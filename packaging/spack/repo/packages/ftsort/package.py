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
    depends_on("python@3.9:", type="build")
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
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),  # Some systems have lib64.
            self.define("FTSORT_EXAMPLES", False),
            self.define_from_variant("FTSORT_FORTRAN", "fortran"),
        ]

    def test_installed_example(self):
        """Compiles the installed example, and sorts on two ranks."""
        mpi = self.spec["mpi"]
        tolerates = self.spec.satisfies("+fault_tolerance")
        examples = join_path(self.prefix.share, "ftsort", "examples")
        # Without ULFM, hello.c ends with FTSORT_ERR_NO_ULFM; smoke.c accepts such an MPI.
        source = join_path(examples, "languages", "hello.c") if tolerates else join_path(examples, "smoke.c")
        compiler = which(mpi.prefix.bin.mpicc)
        compiler(source, "-o", "sort", f"-I{self.prefix.include}", f"-L{self.prefix.lib}",
                 f"-Wl,-rpath,{self.prefix.lib}", "-lftsort")
        # ftsort-mpirun has options that only an Open MPI with ULFM knows.
        launcher = which(join_path(self.prefix.bin, "ftsort-mpirun") if tolerates else mpi.prefix.bin.mpirun)
        launcher.add_default_env("PATH", os.pathsep.join([mpi.prefix.bin, os.environ["PATH"]]))
        options = ["--oversubscribe"] if mpi.name == "openmpi" else []
        output = launcher(*options, "-np", "2", "./sort", output=str.split, error=str.split)
        assert output.count("in order") == 2 and "NOT in order" not in output, output
