/* Sorts on an MPI without fault tolerance: the test of packages. Each rank prints a line with "in order". */
#include <stdio.h>

#include <ftsort.h>

int main(int argc, char **argv)
{
  enum { COUNT = 100000 };
  static int numbers[COUNT];
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_record record = FTSORT_RECORD_PLAIN(int, FTSORT_KEY_I32);
  ftsort_result *sorted;
  ftsort_block block;
  ftsort *group;
  unsigned state = 1;
  size_t i, wrong = 0;
  MPI_Init(&argc, &argv);
  config.accept_no_ulfm = 1;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) return 1;
  for (i = 0; i < COUNT; i++) numbers[i] = (int)(state = state * 1664525u + 1013904223u);
  if (ftsort_run(group, &record, numbers, COUNT, &sorted) != FTSORT_OK) return 2;
  if (ftsort_result_block(sorted, 0, &block) != FTSORT_OK) return 3;
  for (i = 1; i < block.count; i++) wrong += ((const int *)block.data)[i - 1] > ((const int *)block.data)[i];
  printf("%s\nrank %d: %s\n", ftsort_build_info(), (int)ftsort_rank(group), wrong ? "not sorted" : "in order");
  ftsort_result_free(sorted);
  ftsort_free(group);
  MPI_Finalize();
  return wrong != 0;
}
