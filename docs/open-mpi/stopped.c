/* A process that is stopped with SIGSTOP.
 *
 * Rank 1 stops itself. The other ranks wait for a message from it for six seconds. Rank 0 prints "HANG" if
 * they were not told of a failure in this time, and "done" if they were. It then ends rank 1, since mpirun
 * does not return while a stopped process exists. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  const double limit_seconds = 6;
  int rank;
  int pid = (int)getpid();
  int value;
  int finished = 0;
  MPI_Request request;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Bcast(&pid, 1, MPI_INT, 1, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 1)
    raise(SIGSTOP);
  MPI_Irecv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
  const double start = MPI_Wtime();
  while (!finished && MPI_Wtime() - start < limit_seconds) {
    if (MPI_Test(&request, &finished, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      finished = 1;
  }
  const double seconds = MPI_Wtime() - start;
  if (rank == 0) {
    printf(finished ? "done: failure reported after %.1f s\n" : "HANG: no failure reported in %.1f s\n", seconds);
    kill((pid_t)pid, SIGKILL);
  }
  fflush(stdout);
  _exit(0);
}
