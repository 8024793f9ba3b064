/* Agreements while processes fail.
 *
 * All ranks but one, which the seed selects, end themselves with SIGKILL at random moments, while all ranks agree
 * again and again. A rank stops when it knows that all the others have failed.
 * Argument: a seed. Prints "done" if the last rank comes to an end. */
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
  const int max_microseconds = 200000;
  int rank;
  int ranks;
  int failed = 0;

  signal(SIGPIPE, SIG_IGN);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  srandom(seed);
  const int survivor = (int)(random() % ranks);
  if (rank != survivor) {
    srandom(seed * 1000 + (unsigned)rank);
    struct itimerval timer = {{0, 0}, {0, 1 + random() % max_microseconds}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  while (failed < ranks - 1) {
    int flag = 1;
    if (MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPI_SUCCESS) {
      MPI_Group group;
      MPIX_Comm_failure_ack(MPI_COMM_WORLD);
      MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &group);
      MPI_Group_size(group, &failed);
    }
  }
  printf("done\n");
  fflush(stdout);
  _exit(0);
}
