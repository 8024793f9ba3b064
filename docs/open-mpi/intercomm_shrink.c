/* MPIX_Comm_shrink of an inter-communicator. No process fails.
 *
 * The lower half of the ranks is one group, the upper half the other. Each rank prints "done" after the
 * shrink. With the argument "intra" the two groups are merged first. */
#define _XOPEN_SOURCE 700
#include <mpi.h>
#include <mpi-ext.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int rank;
  int ranks;
  MPI_Comm half;
  MPI_Comm comm;
  MPI_Comm shrunk;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int upper = rank >= ranks / 2;
  MPI_Comm_split(MPI_COMM_WORLD, upper, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : ranks / 2, 1, &comm);
  if (argc > 1 && strcmp(argv[1], "intra") == 0)
    MPI_Intercomm_merge(comm, upper, &comm);

  MPIX_Comm_shrink(comm, &shrunk);
  printf("done: rank %d\n", rank);
  fflush(stdout);
  _exit(0);
}
