/* A communicator is created while a process fails.
 *
 * All ranks but rank 0 end themselves with SIGKILL at random moments. The surviving ranks shrink the same
 * communicator again and again until rank 0 is the only one. Each shrink creates a communicator.
 * Argument: a seed. Prints "done" if rank 0 survives. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static void die(int signal_number)
{
  (void)signal_number;
  raise(SIGKILL);
}

int main(int argc, char **argv)
{
  const unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  const int max_microseconds = 300000;
  int rank;
  int survivors;

  signal(SIGPIPE, SIG_IGN);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank != 0) {
    srandom(seed * 1000 + (unsigned)rank);
    struct itimerval timer = {{0, 0}, {0, 1 + random() % max_microseconds}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  do {
    MPI_Comm shrunk = MPI_COMM_NULL;
    if (MPIX_Comm_shrink(MPI_COMM_WORLD, &shrunk) != MPI_SUCCESS) {
      printf("rank %d: MPIX_Comm_shrink failed\n", rank);
      _exit(1);
    }
    MPI_Comm_size(shrunk, &survivors);
  } while (survivors > 1);

  printf("done\n");
  fflush(stdout);
  _exit(0); /* MPI_Finalize is another program's subject. */
}
