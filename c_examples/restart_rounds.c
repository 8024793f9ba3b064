/* restart.c as an algorithm in rounds: ftsort runs the loop, stores the states, and repeats rounds after failures.
 *
 * Estimates pi by random points in a square. In each of the first ROUNDS rounds every node of the virtual hypercube
 * draws POINTS points, and counts those in the circle; in the rounds after these the nodes add up their counts. After
 * each round the counts are stored under the name "pi" in DIR. Started again after all its processes have ended (a time
 * limit, a power failure, kill -9), the program continues with the round after the last stored one.
 *
 *   ftsort-mpirun -np 4 ./restart_rounds DIR [ROUNDS [POINTS]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "leave.h"
#include "points.h"

typedef struct {
  uint64_t rounds; /* that are done */
  uint64_t inside; /* the points in the circle */
} state;

static int begin(void *user, int32_t node, ftsort_buffer *first)
{
  static const state start = {0, 0};
  (void)user, (void)node;
  return ftsort_buffer_append(first, &start, sizeof start);
}

/* Draws points, or adds the count of the partner. */
static int count(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *result)
{
  state now = *(const state *)task->state;
  if (task->dimension == FTSORT_NO_EXCHANGE)
    now.inside += points_inside(task->node, now.rounds, *(const uint64_t *)user);
  else if (bytes == sizeof now)
    now.inside += ((const state *)inbox)->inside;
  now.rounds = task->round;
  return ftsort_buffer_append(result, &now, sizeof now);
}

/* The number of rounds of the stored states. */
static unsigned long long stored_rounds(ftsort *group)
{
  const void *bytes;
  int node = 0;
  while (ftsort_executor(group, node) != ftsort_rank(group)) node++;
  if (ftsort_store_get(group, node, &bytes, NULL) != FTSORT_OK) fail_alone(ftsort_last_error(group));
  return bytes == NULL ? 0 : (unsigned long long)((const state *)bytes)->rounds;
}

int main(int argc, char **argv)
{
  const size_t rounds = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : 100;
  uint64_t points = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_rounds algorithm = FTSORT_ROUNDS_INIT;
  ftsort *group;
  ftsort_result *result;
  ftsort_round *plan;
  ftsort_block block;
  uint32_t dimensions, bit;
  size_t i, failures;
  uint32_t fine = 1;
  char name[64];
  int found;

  if (argc < 2) return 2;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = argv[1];
  group = make_group(&argc, &argv, &config);
  snprintf(name, sizeof name, "pi-rounds-%llu", (unsigned long long)points);
  check(group, ftsort_store_open(group, name, &found));
  if (found && is_lowest(group)) printf("continues after round %llu\n", stored_rounds(group));
  fflush(stdout);

  dimensions = (uint32_t)ftsort_dimension(group);
  plan = (ftsort_round *)calloc(rounds + dimensions + 1, sizeof *plan);
  if (plan == NULL) fail_alone("no memory for the plan");
  for (i = 0; i < rounds; i++) plan[i].dimension = FTSORT_NO_EXCHANGE;
  for (bit = 0; bit < dimensions; bit++) plan[rounds + bit].dimension = bit;
  algorithm.plan = plan;
  algorithm.round_count = rounds + dimensions;
  algorithm.begin = begin;
  algorithm.begin_all = 1; /* any rank can make the first states, so that none can be lost */
  algorithm.absorb = count;
  algorithm.user = &points;
  algorithm.store_every = 1;
  check(group, ftsort_rounds_run(group, &algorithm, NULL, 0, &result));

  do { /* another rank prints if the lowest one has failed before it did */
    check(group, ftsort_result_recover(group, result));
    if (is_lowest(group) && ftsort_result_block(result, 0, &block) == FTSORT_OK && block.count == sizeof(state)) {
      const unsigned long long all = (unsigned long long)(points * rounds) << dimensions;
      const unsigned long long inside = (unsigned long long)((const state *)block.data)->inside;
      printf("pi is about %.6f: %llu of %llu points\n", 4.0 * (double)inside / (double)all, inside, all);
    }
    fflush(stdout);
    check(group, ftsort_agree(group, &fine, &failures));
  } while (failures > 0);
  ftsort_result_free(result);
  check(group, ftsort_store_clear(group)); /* the result is here: the next job begins anew */
  free(plan);
  ftsort_leave(group, 0);
}
