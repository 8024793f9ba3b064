/* Agreements while processes fail.
 *
 * Half of the ranks, which the seed selects, end themselves with SIGKILL at random moments, while all ranks agree again
 * and again. The others stop when they have agreed that all of these have failed. It is important that more than one rank
 * survives: ranks that wait for each other would go on if one of them failed.
 * Arguments: a seed, and optionally "busy": the moments are measured in processor time instead of time. A rank is then
 * killed while it executes, and not while it waits for a processor, which it does between two calls to MPI's progress
 * functions if there are more ranks than processors. Prints "done" on each rank that comes to an end. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void die(int signal_number)
{
  (void)signal_number;
  raise(SIGKILL);
}

/* Whether the seed selects the rank: as many ranks as half of them, in a random order. */
static int is_victim(unsigned seed, int rank, int ranks)
{
  int left = ranks / 2;
  srandom(seed);
  for (int i = 0; i < rank; i++) {
    left -= random() % (ranks - i) < left;
  }
  return random() % (ranks - rank) < left;
}

int main(int argc, char **argv)
{
  const unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  const int busy = argc > 2 && strcmp(argv[2], "busy") == 0;
  const int max_microseconds = busy ? 40000 : 200000;
  int rank;
  int ranks;
  int failed = 0;
  int flag = 0;

  signal(SIGPIPE, SIG_IGN);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  const int victims = ranks / 2;
  if (is_victim(seed, rank, ranks)) {
    srandom(seed * 1000 + (unsigned)rank);
    struct itimerval timer = {{0, 0}, {0, 1 + random() % max_microseconds}};
    signal(busy ? SIGPROF : SIGALRM, die);
    setitimer(busy ? ITIMER_PROF : ITIMER_REAL, &timer, NULL);
  }
  while (flag == 0) {
    flag = failed == victims;
    if (MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPI_SUCCESS) {
      MPI_Group group;
      MPIX_Comm_failure_ack(MPI_COMM_WORLD);
      MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &group);
      MPI_Group_size(group, &failed);
      flag = 0;
    }
  }
  printf("done\n");
  fflush(stdout);
  _exit(0);
}
