/* Surviving processes call MPI_Finalize after a failure.
 *
 * The upper half of the ranks end themselves with SIGKILL. The others agree until all failures are known and
 * then call MPI_Finalize. Each of them prints "done" after it. With the argument "none" no rank fails; with the
 * argument "exit" the survivors call _exit instead of MPI_Finalize. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int rank;
  int ranks;
  int failed = 0;
  const int none = argc > 1 && strcmp(argv[1], "none") == 0;

  signal(SIGPIPE, SIG_IGN);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (!none && rank >= ranks / 2)
    raise(SIGKILL);
  while (!none && failed < ranks - ranks / 2) {
    int flag = 1;
    if (MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPI_SUCCESS) {
      MPI_Group group;
      MPIX_Comm_failure_ack(MPI_COMM_WORLD);
      MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &group);
      MPI_Group_size(group, &failed);
    }
  }
  if (argc > 1 && strcmp(argv[1], "exit") == 0) {
    printf("done: rank %d\n", rank);
    fflush(stdout);
    _exit(0);
  }
  MPI_Finalize();
  printf("done: rank %d\n", rank);
  return 0;
}
