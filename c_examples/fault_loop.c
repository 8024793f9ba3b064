/* A fault-tolerant loop without a sort, in the form of the papers' Algorithm 1.
 *
 * Every node of the virtual hypercube has a number. In each round it takes the smaller of its number and that of its
 * partner in one dimension, from d down to 1, so that in the end all nodes have the smallest number. If a rank fails,
 * the executor of its node computes the node's number again and continues for it, and the round is repeated.
 *
 *   FTSORT_FAULTS="1@0 2@1" ftsort-mpirun -np 4 ./fault_loop
 */
#include <stdio.h>
#include <stdlib.h>

#include "ftsort_store.h"
#include "leave.h"

#define MAX_NODES 1024

static long start_value(int node) { return 1000 + (node * 37) % 101; }

/* The number of a node before the round of dimension s: the smallest start value of the nodes that differ from it
 * only in higher dimensions. */
static long recomputed(int node, int nodes, unsigned s)
{
  int step = 1 << s, other = node % step;
  long smallest = start_value(other);
  for (; other < nodes; other += step)
    if (start_value(other) < smallest) smallest = start_value(other);
  return smallest;
}

/* Exchanges the values of the nodes of this rank with their partners in dimension s, over the communicator of the
 * survivors. Returns 0 if a rank has failed. */
static int exchange(ftsort *group, MPI_Comm comm, int nodes, unsigned s, const long *value, long *received)
{
  MPI_Request requests[2 * MAX_NODES];
  int self = ftsort_rank(group), posted = 0, node, fine = 1;
  for (node = 0; node < nodes; node++) {
    int partner = node ^ (1 << (s - 1));
    int other = ftsort_executor(group, partner);
    requests[posted] = requests[posted + 1] = MPI_REQUEST_NULL;
    if (ftsort_executor(group, node) != self) continue;
    if (other == self) {
      received[node] = value[partner]; /* this rank executes both nodes */
      continue;
    }
    fine &= MPI_Irecv(&received[node], 1, MPI_LONG, ftsort_comm_rank(group, other), partner, comm,
                      &requests[posted++]) == MPI_SUCCESS;
    fine &= MPI_Isend(&value[node], 1, MPI_LONG, ftsort_comm_rank(group, other), node, comm,
                      &requests[posted++]) == MPI_SUCCESS;
  }
  while (posted > 0) {
    posted--;
    if (requests[posted] == MPI_REQUEST_NULL) continue;
    if (MPI_Wait(&requests[posted], MPI_STATUS_IGNORE) != MPI_SUCCESS) fine = 0;
  }
  return fine;
}

static void show_failures(ftsort *group, int nodes)
{
  int node;
  printf("rank %d:", (int)ftsort_rank(group));
  for (node = 0; node < nodes; node++)
    if (ftsort_is_failed(group, node)) printf(" rank %d runs node %d;", (int)ftsort_executor(group, node), node);
  printf("\n");
}

int main(int argc, char **argv)
{
  long value[MAX_NODES], received[MAX_NODES], smallest;
  char mine[MAX_NODES];
  ftsort *group;
  unsigned s, dimension, tries = 0;
  int node, nodes, self;
  uint32_t fine;
  MPI_Comm comm;

  group = make_group(&argc, &argv, NULL);
  self = ftsort_rank(group);
  dimension = ftsort_dimension(group);
  nodes = 1 << dimension;
  if (nodes > MAX_NODES) leave_with(group, 2);

  for (node = 0; node < nodes; node++) mine[node] = node == self;
  value[self] = start_value(self);

  s = dimension;
  while (s >= 1) {
    size_t new_failures = 0;
    ftsort_inject(group, dimension - s); /* the papers' FaultInject */
    /* The papers' FaultDetection: from here on all survivors know the same failures. */
    if (ftsort_fault_check(group, &new_failures) != FTSORT_OK || ftsort_comm(group, &comm) != FTSORT_OK) break;
    if (new_failures > 0) show_failures(group, nodes);
    for (node = 0; node < nodes; node++)
      if (ftsort_executor(group, node) == self && !mine[node]) {
        mine[node] = 1;
        value[node] = recomputed(node, nodes, s);
      }
    tries++;
    fine = (uint32_t)exchange(group, comm, nodes, s, value, received);
    /* If an exchange failed on any rank, or a rank has failed, the round is repeated. */
    if (ftsort_agree(group, &fine, &new_failures) != FTSORT_OK || (!fine && new_failures == 0)) break;
    if (new_failures > 0) {
      show_failures(group, nodes);
      continue;
    }
    for (node = 0; node < nodes; node++)
      if (mine[node] && received[node] < value[node]) value[node] = received[node];
    s--;
  }
  smallest = recomputed(0, nodes, 0);
  printf("survivor %d of %d: tries=%u value=%ld %s\n", self, (int)ftsort_ranks(group), tries, value[self],
         value[self] == smallest ? "right" : "wrong");
  fflush(stdout);
  fine = value[self] == smallest;
  if (ftsort_agree(group, &fine, NULL) != FTSORT_OK) fine = 0; /* whether the values of all ranks are right */
  leave_with(group, fine ? 0 : 1);
  return 1;
}
