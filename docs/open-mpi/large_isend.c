/* A large message to a process that MPI has already seen fail.
 *
 * Rank 1 ends itself with SIGKILL. The other ranks wait until MPIX_Comm_get_failed reports it, then send it
 * a message of 8 MiB. Each rank that survives prints "done". */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  const int bytes = 8 << 20;
  char *message = calloc((size_t)bytes, 1);
  int rank;
  int failed = 0;
  int finished = 0;
  int code = MPI_SUCCESS;
  MPI_Request request;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 1)
    raise(SIGKILL);
  while (!failed) {
    MPI_Group group;
    int flag;
    MPI_Iprobe(0, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE); /* Let MPI make progress. */
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &group);
    MPI_Group_size(group, &failed);
  }
  code = MPI_Isend(message, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
  while (code == MPI_SUCCESS && !finished)
    code = MPI_Test(&request, &finished, MPI_STATUS_IGNORE);
  printf("done: rank %d, the message %s\n", rank, code == MPI_SUCCESS ? "was sent" : "failed");
  fflush(stdout);
  _exit(0);
}
