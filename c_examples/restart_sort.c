/* A sort whose result survives the end of the job.
 *
 * Sorts NUMBERS pseudo-random numbers, of which each rank has an equal part, and stores the result under the name
 * "numbers" in DIR. Started again after all its processes have ended (a time limit, a power failure, kill -9), the
 * program finds the result if the sort was complete, on as many ranks or on another number with the same next power
 * of two.
 *
 *   ftsort-mpirun -np 4 ./restart_sort DIR [NUMBERS]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ftsort.h"
#include "ftsort_store.h"
#include "leave.h"

/* The number at a place, the same in every job. */
static uint64_t number_at(uint64_t place)
{
  uint64_t x = place * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 31);
}

int main(int argc, char **argv)
{
  const uint64_t all = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
  ftsort_config config = FTSORT_CONFIG_INIT;
  const ftsort_record record = FTSORT_RECORD_PLAIN(uint64_t, FTSORT_KEY_U64);
  ftsort_block block;
  ftsort *group;
  ftsort_result *result;
  uint64_t *numbers, first, count, i;
  size_t failures;
  uint32_t fine = 1;
  int found;

  if (argc < 2) return 2;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = argv[1];
  group = make_group(&argc, &argv, &config);

  first = all * (uint64_t)ftsort_rank(group) / (uint64_t)ftsort_ranks(group);
  count = all * (uint64_t)(ftsort_rank(group) + 1) / (uint64_t)ftsort_ranks(group) - first;
  numbers = (uint64_t *)malloc((size_t)count * sizeof *numbers + 1);
  for (i = 0; numbers != NULL && i < count; i++) numbers[i] = number_at(first + i);

  check(group, ftsort_store_open(group, "numbers", &found));
  /* NULL is an invalid argument: if a rank has no memory for its numbers, the call fails on all ranks. */
  check(group, ftsort_run_stored(group, &record, numbers, (size_t)count, &result));
  if (found && is_lowest(group)) printf("continues with the stored result\n");
  fflush(stdout);
  ftsort_inject(group, 3); /* kills the ranks with @3 in FTSORT_FAULTS */
  do { /* another rank prints if the one with the median has failed before it did */
    check(group, ftsort_result_recover(group, result));
    for (i = 0; ftsort_result_block(result, (size_t)i, &block) == FTSORT_OK; i++)
      if (block.offset <= all / 2 && all / 2 < block.offset + block.count)
        printf("the median is %llu\n",
               (unsigned long long)((const uint64_t *)block.data)[all / 2 - block.offset]);
    fflush(stdout);
    check(group, ftsort_agree(group, &fine, &failures));
  } while (failures > 0);

  ftsort_result_free(result);
  check(group, ftsort_store_clear(group)); /* the result has been used: the next job begins anew */
  free(numbers);
  ftsort_leave(group, 0);
}
