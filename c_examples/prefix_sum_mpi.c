/* All-reduce and prefix sum by recursive doubling in plain MPI, from which prefix_sum.c is made. It needs 2^d ranks,
 * and none of them may fail. docs/rounds.md shows the steps from this program to the other.
 *
 *   mpirun -np 4 ./prefix_sum_mpi 1000000 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t number(int node, size_t i) { return (int64_t)((node + 1) * 31 + (int64_t)i * 7) % 1009; }

int main(int argc, char **argv)
{
  size_t i, count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
  int64_t *upto, *all, *came, upto_last = 0, all_last = 0;
  int rank, ranks, bit, node;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  upto = (int64_t *)malloc((count + 1) * sizeof *upto);
  all = (int64_t *)malloc((count + 1) * sizeof *all);
  came = (int64_t *)malloc((count + 1) * sizeof *came);
  if ((ranks & (ranks - 1)) != 0 || upto == NULL || all == NULL || came == NULL)
    MPI_Abort(MPI_COMM_WORLD, 1);
  for (i = 0; i < count; i++) upto[i] = all[i] = number(rank, i);

  for (bit = 1; bit < ranks; bit <<= 1) {
    int partner = rank ^ bit;
    MPI_Sendrecv(all, (int)count, MPI_INT64_T, partner, 0, came, (int)count, MPI_INT64_T, partner, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (i = 0; i < count; i++) {
      if (rank & bit) upto[i] += came[i];
      all[i] += came[i];
    }
  }

  for (node = 0; node < ranks && count > 0; node++) {
    all_last += number(node, count - 1);
    if (node <= rank) upto_last += number(node, count - 1);
  }
  printf("rank %d: %s\n", rank,
         count == 0 || (upto[count - 1] == upto_last && all[count - 1] == all_last) ? "right" : "WRONG");
  free(upto);
  free(all);
  free(came);
  MPI_Finalize();
  return 0;
}
