/* The exit status of mpirun after failures.
 *
 * Argument "all": each rank ends itself with SIGKILL. Argument "half": the upper half of the ranks does, and
 * the lower half leaves with status 0. Argument "code": the same, but the lower half leaves with status 3.
 * Argument "fail": no rank is killed, and all return 3. Argument "one": rank 0 returns 3, and the others 0. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int rank;
  int ranks;
  const char *mode = argc > 1 ? argv[1] : "all";

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  if (strcmp(mode, "fail") == 0 || strcmp(mode, "one") == 0) {
    MPI_Finalize();
    return rank == 0 || strcmp(mode, "fail") == 0 ? 3 : 0;
  }
  if (strcmp(mode, "all") == 0 || rank >= ranks / 2)
    raise(SIGKILL);
  _exit(strcmp(mode, "code") == 0 ? 3 : 0);
}
