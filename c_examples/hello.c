/* The smallest complete program: each rank has a million random numbers, all ranks sort them together, and the
 * program finishes although ranks fail meanwhile.
 *
 *   mpicc -std=c99 hello.c -o hello -lftsort
 *   mpirun --with-ft ulfm --oversubscribe -np 4 ./hello
 *   FTSORT_FAULTS="1@2" mpirun --with-ft ulfm --oversubscribe -np 4 ./hello    (kills rank 1 in round 2) */
#include <stdio.h>
#include <stdlib.h>

#include "ftsort.h"

#define COUNT 1000000

/* Generates the same numbers in every run: xorshift with the rank as its seed. */
static int32_t *make_numbers(int rank)
{
  int32_t *numbers = (int32_t *)malloc(COUNT * sizeof *numbers);
  uint32_t state = 2463534242u + 7919u * (uint32_t)rank;
  size_t i;
  for (i = 0; numbers && i < COUNT; i++) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    numbers[i] = (int32_t)state;
  }
  return numbers;
}

int main(int argc, char **argv)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32); /* plain 32-bit integers */
  ftsort *group = NULL;
  ftsort_result *result = NULL;
  int32_t *numbers;
  size_t i, k, in_order = 1;
  int rank;

  ftsort_prepare();      /* sets options that Open MPI reads in MPI_Init */
  ftsort_allow_faults(); /* only because this is a demonstration: FTSORT_FAULTS may kill ranks */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  /* From here on ranks may fail. NULL selects the default configuration, which keeps one replica of every input in
   * the memory of another rank. */
  if (ftsort_init(MPI_COMM_WORLD, NULL, &group) != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  numbers = make_numbers(rank);
  if (ftsort_run(group, &record, numbers, COUNT, &result) != FTSORT_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ftsort_last_error(group));
    /* All ranks return the error. Only the executor of node 0, the lowest survivor, tells mpirun of it. */
    ftsort_leave(group, ftsort_executor(group, 0) == rank ? 1 : 0);
  }

  /* The result is distributed: a rank has the block of each node that it executes, its home node and those of failed
   * ranks. block.offset is the position of a block in the whole result. */
  for (k = 0; k < ftsort_result_count(result); k++) {
    ftsort_block block;
    const int32_t *sorted;
    ftsort_result_block(result, k, &block);
    sorted = (const int32_t *)block.data;
    for (i = 1; i < block.count; i++) in_order &= sorted[i - 1] <= sorted[i];
  }
  printf("rank %d of %d: %zu of %llu numbers, blocks: %zu, %s\n", rank, (int)ftsort_ranks(group),
         (size_t)COUNT, (unsigned long long)ftsort_result_total(result),
         ftsort_result_count(result), in_order ? "in order" : "NOT in order");
  ftsort_result_free(result);
  free(numbers);

  /* Replaces MPI_Finalize, which may wait for failed ranks without end. Does not return. */
  ftsort_leave(group, in_order ? 0 : 1);
  return 1;
}
