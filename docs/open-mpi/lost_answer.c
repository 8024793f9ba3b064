/* An agreement in which the answer to the new root is lost.
 *
 * Four ranks: 0 is the root and has the children 1 and 2, and 3 is the child of 1. Rank 1 fails first, so that rank 3
 * becomes a child of rank 0. In the agreement after that:
 *   - rank 3 sends its contribution and is stopped for three seconds;
 *   - rank 0 sends the decision to rank 3, and fails before it sends it to rank 2;
 *   - rank 2 becomes the root, and asks rank 3 for the decision;
 *   - rank 3 goes on, and finds the request of rank 2 before the decision of rank 0, because rank 2 was the first to set
 *     up a fast box for rank 3.
 * The program counts the messages of the agreement in its own mca_btl_sm_send, which takes the place of Open MPI's.
 * Prints "done" if the survivors come to the end of the next agreement. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*send_function)(void *, void *, void *, uint8_t);

static int rank;
static int sends = -1; /* below 0: messages are not counted */

int mca_btl_sm_send(void *btl, void *endpoint, void *descriptor, uint8_t tag)
{
  static send_function real;
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mca_btl_sm_send");
  if (sends >= 0) sends++;
  if (rank == 0 && sends == 2) raise(SIGKILL);
  const int result = real(btl, endpoint, descriptor, tag);
  if (rank == 3 && sends == 1) raise(SIGSTOP);
  return result;
}

static void send_many(int from, int to)
{
  const int messages = 50;
  for (int i = 0; i < messages; i++) {
    if (rank == from) MPI_Send(NULL, 0, MPI_BYTE, to, 0, MPI_COMM_WORLD);
    if (rank == to) MPI_Recv(NULL, 0, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void agree_until_failed(int expected)
{
  int failed = 0;
  int flag = 0;
  while (failed < expected || flag != 1) {
    MPI_Group group;
    flag = 1;
    if (MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPI_SUCCESS) flag = 0;
    MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &group);
    MPI_Group_size(group, &failed);
  }
}

int main(int argc, char **argv)
{
  int flag = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const pid_t parent = getpid();
  if (rank == 3 && fork() == 0) {
    while (kill(parent, 0) == 0) {
      sleep(3);
      kill(parent, SIGCONT);
    }
    _exit(0);
  }
  send_many(2, 3);
  MPI_Barrier(MPI_COMM_WORLD);
  send_many(0, 3);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) raise(SIGKILL);
  agree_until_failed(1);
  if (rank == 2) sleep(1); /* Rank 3 is stopped before rank 0 has all contributions. */
  sends = 0;
  for (int i = 0; i < 3; i++) {
    MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    fprintf(stderr, "rank %d has ended agreement %d\n", rank, i); /* shows where the others wait */
  }
  printf("done\n");
  fflush(stdout);
  _exit(0);
}
