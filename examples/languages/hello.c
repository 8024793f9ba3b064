/* Sorts numbers on all ranks; the survivors of a kill finish:  FTSORT_FAULTS=1@1 ftsort-mpirun -np 4 ./hello */
#include <stdio.h>
#include <stdlib.h>
#include "ftsort.h"
static int numbers[1000000];
int main(int argc, char **argv)
{
  ftsort_result *sorted;
  ftsort *group;
  ftsort_prepare();
  ftsort_allow_faults();
  MPI_Init(&argc, &argv);
  if (ftsort_group_of(MPI_COMM_WORLD, &group) != FTSORT_OK) return 1;
  for (size_t i = 0; i < 1000000; i++) numbers[i] = rand();
  if (ftsort_sort(MPI_COMM_WORLD, numbers, 1000000, MPI_INT, &sorted) != FTSORT_OK) /* ranks may fail */
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
  for (size_t i = 0; i < ftsort_result_count(sorted); i++) {
    ftsort_block block;
    ftsort_result_block(sorted, i, &block);
    const int *found = block.data, *end = found + block.count;
    while (found + 1 < end && found[0] <= found[1]) found++;
    printf("node %d: %zu numbers, %s\n", block.node, block.count, found + 1 < end ? "NOT in order" : "in order");
  }
  /* in place of MPI_Finalize; one rank is enough to tell mpirun of an error */
  return ftsort_leave(group, !sorted && ftsort_executor(group, 0) == ftsort_rank(group));
}
