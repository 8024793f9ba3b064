/* The TCP transport writes to the connection of a failed process.
 *
 * Rank 1 ends itself with SIGKILL. Rank 0 calls no MPI function for a second, and then sends messages to rank 1
 * without waiting in between. With the argument "ignore" the program ignores SIGPIPE before MPI_Init. Without
 * it, a rank that receives SIGPIPE prints a line and then ends by the signal, as it does without a handler.
 * Rank 0 prints "done" if it survives. Run it with --mca btl self,tcp. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 10 };

static void report(int signal_number)
{
  static const char line[] = "CRASH: a survivor received SIGPIPE\n";
  if (write(STDOUT_FILENO, line, sizeof line - 1) < 0)
    _exit(1);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

int main(int argc, char **argv)
{
  MPI_Request requests[MESSAGES];
  int rank;
  int value = 0;

  signal(SIGPIPE, argc > 1 && strcmp(argv[1], "ignore") == 0 ? SIG_IGN : report);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 1) {
    MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* Opens the connection. */
    raise(SIGKILL);
  }
  if (rank == 0) {
    MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    sleep(1);
    for (int i = 0; i < MESSAGES; i++)
      MPI_Isend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < MESSAGES; i++) {
      int sent = 0;
      while (!sent && MPI_Test(&requests[i], &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        ;
    }
    printf("done\n");
    fflush(stdout);
  }
  _exit(0);
}
