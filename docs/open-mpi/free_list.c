/* Messages to a process that does not receive use up the shared-memory transport's list of fragments.
 *
 * Rank 1 stops calling MPI, like a process that has failed and is not known to have failed. Rank 2 sends 1000
 * large messages to it. Then all ranks but rank 1 agree. Rank 1 ends itself after a second, so that the others
 * can agree. Prints "done" if the agreement returns on rank 2. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { MESSAGES = 1000 };

int main(int argc, char **argv)
{
  static char message[65536];
  static MPI_Request requests[MESSAGES];
  int rank;
  int flag = 1;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 1) {
    sleep(1);
    raise(SIGKILL);
  }
  if (rank == 2)
    for (int i = 0; i < MESSAGES; i++)
      MPI_Isend(message, sizeof message, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[i]);

  MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
  if (rank == 2)
    printf("done\n");
  fflush(stdout);
  _exit(0);
}
