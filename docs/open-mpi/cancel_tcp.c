/* Receives are cancelled after a failure, over TCP.
 *
 * In each round all ranks send a large message to all ranks that have not failed. A rank that sees a new failure
 * cancels its receives. Then all ranks agree, and the next round begins. All ranks but rank 0 end themselves with
 * SIGKILL at random moments. Argument: a seed. Prints "done" if rank 0 comes to an end. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { BYTES = 4 << 20, MAX_RANKS = 16 };

static char message[BYTES], received[MAX_RANKS][BYTES];

static void die(int signal_number)
{
  (void)signal_number;
  raise(SIGKILL);
}

/* The processes that this rank has acknowledged as failed, as bits. */
static int acknowledge(MPI_Group world)
{
  MPI_Group group;
  int count, bits = 0;
  MPIX_Comm_failure_ack(MPI_COMM_WORLD);
  MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &group);
  MPI_Group_size(group, &count);
  for (int i = 0, peer; i < count && MPI_Group_translate_ranks(group, 1, &i, world, &peer) == MPI_SUCCESS; i++)
    bits |= 1 << peer;
  return bits;
}

int main(int argc, char **argv)
{
  int rank, ranks;
  MPI_Group world, group;

  signal(SIGPIPE, SIG_IGN);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  srandom((argc > 1 ? (unsigned)atoi(argv[1]) : 1) * 1000 + (unsigned)rank);
  struct itimerval timer = {{0, 0}, {0, rank == 0 ? 0 : 1 + random() % 900000}};
  signal(SIGALRM, die);
  setitimer(ITIMER_REAL, &timer, NULL);

  int alive = (1 << ranks) - 1;
  for (int round = 0; alive != 1; round++) {
    MPI_Request requests[2 * MAX_RANKS];
    int open = 1, seen = 0, known = 0;
    for (int peer = 0; peer < ranks; peer++) {
      requests[2 * peer] = requests[2 * peer + 1] = MPI_REQUEST_NULL;
      known += !(alive >> peer & 1);
      if (peer == rank || !(alive >> peer & 1))
        continue;
      MPI_Irecv(received[peer], BYTES, MPI_CHAR, peer, round, MPI_COMM_WORLD, &requests[2 * peer]);
      MPI_Isend(message, BYTES, MPI_CHAR, peer, round, MPI_COMM_WORLD, &requests[2 * peer + 1]);
    }
    while (open && seen <= known) {
      open = 0;
      for (int i = 0; i < 2 * ranks; i++) {
        int finished = 0;
        open |= MPI_Test(&requests[i], &finished, MPI_STATUS_IGNORE) == MPI_SUCCESS && !finished;
      }
      MPIX_Comm_get_failed(MPI_COMM_WORLD, &group);
      MPI_Group_size(group, &seen);
    }
    for (int i = 0; i < 2 * ranks; i += 2) {
      if (requests[i] != MPI_REQUEST_NULL)
        MPI_Cancel(&requests[i]);
      MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    do {
      alive = ((1 << ranks) - 1) & ~acknowledge(world);
    } while (MPIX_Comm_agree(MPI_COMM_WORLD, &alive) != MPI_SUCCESS);
  }
  printf("done\n");
  fflush(stdout);
  _exit(0);
}
