/* The receiver of a large message fails, and its completion notice is processed after the failure.
 *
 * Rank 1 receives a large message from rank 0 and ends itself with SIGKILL. Its completion notice waits in
 * rank 0's queue behind small messages of the other ranks, so that rank 0 sees the failure first. Rank 0 then
 * sends to rank 2, and changes the buffer as soon as MPI_Send has returned. Rank 2 receives later and prints
 * "WRONG" if it received the changed buffer. With the argument "drain" rank 0 receives the small messages
 * before it sends to rank 2. Run it with --mca btl_sm_fbox_max 0, so that there is one queue for all senders. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1 << 20, SMALL = 400 };

int main(int argc, char **argv)
{
  static char large[BYTES];
  static int small[SMALL];
  static MPI_Request requests[SMALL];
  MPI_Request request;
  int rank;
  int ranks;
  int value = 0;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 1) {
    for (int source = 2; source < ranks; source++)
      MPI_Recv(&value, 1, MPI_INT, source, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(large, BYTES, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    raise(SIGKILL);
  }
  if (rank == 0) {
    int code = MPI_SUCCESS;
    int finished = 0;
    MPI_Isend(large, BYTES, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
    sleep(1); /* In this time rank 1 receives and ends. */
    while (code == MPI_SUCCESS && !finished)
      code = MPI_Test(&request, &finished, MPI_STATUS_IGNORE);
    printf("The message to rank 1 %s.\n", code == MPI_SUCCESS ? "was sent" : "failed");
    fflush(stdout);
    for (int source = 2; argc > 1 && strcmp(argv[1], "drain") == 0 && source < ranks; source++)
      for (int i = 0; i < SMALL; i++)
        MPI_Recv(&value, 1, MPI_INT, source, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    memset(large, 'A', BYTES);
    MPI_Send(large, BYTES, MPI_CHAR, 2, 1, MPI_COMM_WORLD);
    memset(large, 'B', BYTES);
    sleep(2);
  } else {
    for (int i = 0; i < SMALL; i++)
      MPI_Isend(&small[i], 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &requests[i]);
    MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    sleep(2);
    if (rank == 2) {
      MPI_Recv(large, BYTES, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (large[0] != 'A' || large[BYTES - 1] != 'A')
        printf("WRONG: rank 2 received a buffer that was changed after MPI_Send\n");
      printf("done\n");
      fflush(stdout);
    }
  }
  _exit(0);
}
