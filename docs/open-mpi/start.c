/* A program that starts and ends, to count the runs in which mpirun does not start any rank. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
  int rank;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Finalize();
  if (rank == 0)
    printf("done\n");
  return 0;
}
