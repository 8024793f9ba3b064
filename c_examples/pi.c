/* Approximates pi on all ranks, many times one after another, and prints the seconds of each time: Figure 1 of the 2018
 * paper. Plain MPI, without ftsort. The variation is that of the machine, and the reason for a group of recommended
 * processes (docs/dgrp.md).
 *
 *   mpirun -np 16 ./pi [EXECUTIONS [POINTS]]     prints "execution,fastest,slowest": the seconds of two ranks */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "points.h"

int main(int argc, char **argv)
{
  const uint64_t executions = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
  const uint64_t points = argc > 2 ? strtoull(argv[2], NULL, 10) : 5000000;
  uint64_t execution, mine, all = 0;
  int rank, ranks;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) printf("execution,fastest,slowest\n");
  for (execution = 1; execution <= executions; execution++) {
    double seconds, fastest = 0, slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    mine = points_inside(rank, execution, points);
    seconds = MPI_Wtime() - seconds;
    MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &fastest, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%llu,%.6f,%.6f\n", (unsigned long long)execution, fastest, slowest);
  }
  if (rank == 0)
    fprintf(stderr, "pi is about %.6f\n", 4.0 * (double)all / ((double)points * (double)ranks));
  MPI_Finalize();
  return 0;
}
