/* Sorts the particles of every cell of a simulation by one call: many small arrays take little more time than one.
 *
 *   mpicc -std=c99 cells.c -o cells -lftsort
 *   mpirun --with-ft ulfm --oversubscribe -np 4 ./cells
 *   FTSORT_FAULTS="1@0.stored" mpirun --with-ft ulfm --oversubscribe -np 4 ./cells */
#include <stdio.h>
#include <stdlib.h>

#include "ftsort_query.h"
#include "leave.h"

#define CELLS 500
#define MOST 40 /* particles of a cell on one rank */

struct particle {
  double position[3];
  double energy;
};

/* Generates the particles of a cell on this rank, and returns their number. */
static size_t generate(int rank, int cell, struct particle *particles)
{
  uint32_t state = 2463534242u + 7919u * (uint32_t)rank + 104729u * (uint32_t)cell;
  size_t count = state % (MOST + 1), i;
  for (i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    particles[i].position[0] = cell;
    particles[i].position[1] = rank;
    particles[i].position[2] = (double)i;
    particles[i].energy = (double)(state >> 8) / 1000;
  }
  return count;
}

/* Whether the blocks of a cell on this rank are in order, and have particles of this cell only. Adds their number. */
static int is_right(const ftsort_result *result, int cell, uint64_t *found)
{
  ftsort_block block;
  size_t index, i;
  for (index = 0; ftsort_result_block(result, index, &block) == FTSORT_OK; index++) {
    const struct particle *particles = (const struct particle *)block.data;
    for (i = 0; i < block.count; i++)
      if ((int)particles[i].position[0] != cell || (i > 0 && particles[i].energy < particles[i - 1].energy)) return 0;
    *found += block.count;
  }
  return 1;
}

int main(int argc, char **argv)
{
  static struct particle particles[CELLS][MOST];
  static ftsort_array cells[CELLS];
  static ftsort_result *results[CELLS];
  ftsort_record by_energy = FTSORT_RECORD_MEMBER(struct particle, energy, FTSORT_KEY_F64);
  ftsort *group;
  ftsort_status status;
  MPI_Comm survivors;
  uint64_t found = 0, all = 0, total = 0;
  uint32_t right = 1;
  int cell;
  group = make_group(&argc, &argv, NULL);
  for (cell = 0; cell < CELLS; cell++) {
    cells[cell].record = &by_energy;
    cells[cell].data = particles[cell];
    cells[cell].count = generate(ftsort_rank(group), cell, particles[cell]);
  }
  status = ftsort_run_many(group, cells, CELLS, results);
  for (cell = 0; cell < CELLS && status == FTSORT_OK; cell++) {
    right &= (uint32_t)is_right(results[cell], cell, &found);
    total += ftsort_result_total(results[cell]);
    ftsort_result_free(results[cell]); /* in any order */
  }
  if (status != FTSORT_OK || ftsort_agree(group, &right, NULL) != FTSORT_OK ||
      ftsort_comm(group, &survivors) != FTSORT_OK ||
      MPI_Allreduce(&found, &all, 1, MPI_UINT64_T, MPI_SUM, survivors) != MPI_SUCCESS) {
    fprintf(stderr, "%s\n", ftsort_last_error(group));
    right = 0;
  }
  if (right && is_lowest(group))
    printf("%d particles in %d cells: %s\n", (int)total, CELLS, all == total ? "right" : "INCOMPLETE");
  leave_with(group, right && all == total ? 0 : 1);
  return 1;
}
