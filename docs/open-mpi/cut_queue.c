/* A process fails while it puts a message into the shared-memory queue of another process.
 *
 * All ranks but rank 0 and the last send small messages to rank 0, and end themselves with SIGKILL at random
 * moments. Then the last rank sends one message to rank 0. Argument: a seed. Prints "done" if it arrives. Run it
 * with --mca btl_sm_fbox_max 0, so that all messages go through the queue. */
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
  int rank;
  int ranks;
  int value = 0;
  int finished = 0;
  MPI_Request request;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == ranks - 1) {
    sleep(2);
    MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    sleep(2);
    _exit(0);
  }
  if (rank != 0) {
    srandom(seed * 1000 + (unsigned)rank);
    struct itimerval timer = {{0, 0}, {0, 100000 + random() % 800000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;)
      MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  }
  MPI_Irecv(&value, 1, MPI_INT, ranks - 1, 1, MPI_COMM_WORLD, &request);
  while (!finished) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(1 + rand() % (ranks - 2), 0, MPI_COMM_WORLD, &arrived, &status);
    if (arrived)
      MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Test(&request, &finished, MPI_STATUS_IGNORE);
  }
  printf("done\n");
  fflush(stdout);
  _exit(0);
}
