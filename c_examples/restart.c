/* A loop that survives failures, and also the end of the whole job: a time limit, a power failure, kill -9.
 *
 * Estimates pi by random points in a square. In each round every node of the virtual hypercube draws POINTS points, and
 * counts those in the circle. After each round the counts are committed in DIR, under a name with POINTS. Started again
 * after all its processes have ended, the program continues with the round after the last committed one.
 *
 *   ftsort-mpirun -np 4 ./restart DIR [ROUNDS [POINTS]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ftsort_store.h"
#include "leave.h"
#include "points.h"

typedef struct {
  uint64_t rounds; /* that are committed */
  uint64_t inside; /* the points in the circle */
} state;

/* The committed state of a node that this rank executes. */
static state committed_state(ftsort *group, int node)
{
  static const state start = {0, 0};
  const void *bytes;
  if (ftsort_store_get(group, node, &bytes, NULL) != FTSORT_OK) fail_alone(ftsort_last_error(group));
  return bytes == NULL ? start : *(const state *)bytes;
}

/* Adds up the points of all nodes, on every survivor. */
static uint64_t sum(ftsort *group, int nodes)
{
  uint64_t mine, all = 0;
  uint32_t fine;
  size_t failed;
  MPI_Comm comm;
  int node;
  do {
    /* In this order: a failure that ftsort_comm finds moves no states, but the fault check after it does. */
    check(group, ftsort_comm(group, &comm));
    check(group, ftsort_fault_check(group, NULL));
    for (mine = 0, node = 0; node < nodes; node++)
      if (ftsort_executor(group, node) == ftsort_rank(group)) mine += committed_state(group, node).inside;
    fine = MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, comm) == MPI_SUCCESS;
    check(group, ftsort_agree(group, &fine, &failed));
  } while (!fine || failed > 0);
  return all;
}

int main(int argc, char **argv)
{
  const uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
  const uint64_t points = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group;
  uint64_t round = 0, inside;
  int found, committed, nodes, node, failed, done;
  size_t failures;
  uint32_t fine = 1;
  char name[64];

  if (argc < 2) return 2;
  config.store = FTSORT_STORE_DIRECTORY;
  config.store_directory = argv[1];
  group = make_group(&argc, &argv, &config);
  nodes = 1 << ftsort_dimension(group);
  snprintf(name, sizeof name, "pi-loop-%llu", (unsigned long long)points);
  check(group, ftsort_store_open(group, name, &found));
  for (node = 0; node < nodes; node++) /* all nodes have done the same number of rounds */
    if (ftsort_executor(group, node) == ftsort_rank(group)) round = committed_state(group, node).rounds;
  if (found && is_lowest(group)) printf("continues after round %llu\n", (unsigned long long)round);
  fflush(stdout);
  if (round > rounds) {
    if (is_lowest(group)) fprintf(stderr, "%llu rounds are done already\n", (unsigned long long)round);
    leave_with(group, 2);
  }

  while (round < rounds) {
    ftsort_inject(group, (uint32_t)round); /* the papers' FaultInject */
    check(group, ftsort_fault_check(group, NULL));
    failed = failed_ranks(group);
    for (node = 0, done = 1; node < nodes; node++) {
      state now;
      if (ftsort_executor(group, node) != ftsort_rank(group)) continue;
      now = committed_state(group, node);
      now.inside += points_inside(node, round, points);
      now.rounds++;
      done = done && ftsort_store_put(group, node, &now, sizeof now) == FTSORT_OK;
    }
    if (!done) fprintf(stderr, "%s\n", ftsort_last_error(group));
    check(group, ftsort_store_commit(group, done, &committed));
    round += (uint64_t)committed;
    /* The round is repeated if a rank has failed. If a state was refused, it would be again. */
    if (!committed && failed_ranks(group) == failed) leave_with(group, 1);
  }

  do { /* another rank prints if the lowest one has failed before it did */
    inside = sum(group, nodes);
    if (is_lowest(group))
      printf("pi is about %.6f: %llu of %llu points\n",
             4.0 * (double)inside / (double)(rounds * points * (uint64_t)nodes), (unsigned long long)inside,
             (unsigned long long)(rounds * points * (uint64_t)nodes));
    fflush(stdout);
    check(group, ftsort_agree(group, &fine, &failures));
  } while (failures > 0);
  check(group, ftsort_store_clear(group)); /* the loop is complete: the next job starts from the beginning */
  ftsort_leave(group, 0);
  return 1;
}
