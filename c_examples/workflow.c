/* The papers' Algorithm 1, a fault-tolerant HyperQuickSort (Camargo and Duarte 2024), written by the user. It takes
 * from ftsort only the failed ranks, the executors of nodes, a communicator and a store. Comments name the lines of
 * Algorithm 1. For sorting alone, ftsort_run is much shorter.
 *
 *   FTSORT_FAULTS="1@0 2@1" ftsort-mpirun -np 4 ./workflow 1000000
 *
 * A rank always sends the messages of a round, if only empty ones, so that no rank waits for a survivor without end. A
 * receive from a failed rank ends with an error, and the round is repeated.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_store.h"

#define MAX_NODES 64

typedef struct list {
  int *keys;
  int count;
} list;

static ftsort *group;
static int self, nodes;

static void give_up(const char *function)
{
  fprintf(stderr, "rank %d: %s: %s\n", self, function, ftsort_last_error(group));
  ftsort_leave(group, 1);
}

static void need(ftsort_status status, const char *function)
{
  if (status != FTSORT_OK) give_up(function);
}

static list new_list(int count)
{
  list made;
  made.count = count;
  made.keys = (int *)malloc((count > 0 ? (size_t)count : 1) * sizeof(int));
  if (made.keys == NULL) give_up("malloc");
  return made;
}

static int ascending(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static void quick_sort(list *given) { qsort(given->keys, (size_t)given->count, sizeof(int), ascending); }

static list union_of(const list *one, const list *other)
{
  list both = new_list(one->count + other->count);
  memcpy(both.keys, one->keys, (size_t)one->count * sizeof(int));
  memcpy(both.keys + one->count, other->keys, (size_t)other->count * sizeof(int));
  return both;
}

/* Generates node k's share of the input. Any rank can do so, which the check at the end needs. */
static int key_of(int node, int index)
{
  uint64_t x = ((uint64_t)node << 32) + (uint64_t)index + 1;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return (int)(uint32_t)(x >> 32);
}

static int mine(int node) { return ftsort_executor(group, node) == self; }

/* Line 9, and the papers' readCheckpoint: reads the list of node k. */
static list read_list(int node)
{
  const void *state;
  size_t bytes;
  list copy;
  need(ftsort_store_get(group, node, &state, &bytes), "ftsort_store_get");
  if (state == NULL) give_up("a list is lost");
  copy = new_list((int)(bytes / sizeof(int)));
  memcpy(copy.keys, state, bytes);
  return copy;
}

/* Line 11: the fault-free node with the smallest identifier in node k's d-dimensional hypercube. */
static int root_of(int node, unsigned d)
{
  int first = node >> d << d, other;
  for (other = first; other < first + (1 << d); other++)
    if (!ftsort_is_failed(group, other)) return other;
  return first;
}

/* Posts the messages of a round, and waits for them. Returns 0 if one has not arrived. */
static MPI_Request requests[4 * MAX_NODES];
static int posted;

static int slot_of(int node) { return ftsort_comm_rank(group, ftsort_executor(group, node)); }

static int post_send(MPI_Comm comm, const void *data, int count, int from, int to, int kind)
{
  return MPI_Isend(data, count, MPI_INT, slot_of(to), kind * MAX_NODES * MAX_NODES + from * MAX_NODES + to,
                   comm, &requests[posted++]) == MPI_SUCCESS;
}

static int post_receive(MPI_Comm comm, void *data, int count, int from, int to, int kind)
{
  return MPI_Irecv(data, count, MPI_INT, slot_of(from),
                   kind * MAX_NODES * MAX_NODES + from * MAX_NODES + to, comm,
                   &requests[posted++]) == MPI_SUCCESS;
}

static int wait_for_all(void)
{
  int fine = 1;
  while (posted > 0)
    if (MPI_Wait(&requests[--posted], MPI_STATUS_IGNORE) != MPI_SUCCESS) fine = 0;
  return fine;
}

/* Lines 12 to 14: roots broadcast their medians, and pivot[k] is the one that node k receives. A root without records
 * has no median, and sends any number. */
static int broadcast_pivots(MPI_Comm comm, unsigned d, const list *lists, int *pivot)
{
  int node, fine = 1, medians[MAX_NODES];
  for (node = 0; node < nodes; node++) {
    int root = root_of(node, d);
    if (mine(root)) medians[node] = lists[root].count > 0 ? lists[root].keys[lists[root].count / 2] : 0;
    if (mine(root) && mine(node)) pivot[node] = medians[node];
    else if (mine(root)) fine &= post_send(comm, &medians[node], 1, root, node, 0);
    else if (mine(node)) fine &= post_receive(comm, &pivot[node], 1, root, node, 0);
  }
  return wait_for_all() && fine;
}

/* Lines 16 to 24 for every node of this rank: sends one list to the executor of the partner in dimension d, and
 * receives the partner's list in `got`. */
static int exchange(MPI_Comm comm, unsigned d, const list *give, list *got)
{
  int node, fine = 1, sizes[MAX_NODES];
  for (node = 0; node < nodes; node++) {
    int across = node ^ 1 << (d - 1);
    int partner = ftsort_partner(group, node, d - 1); /* line 16 */
    sizes[node] = 0;
    if (!mine(node) || mine(across) || partner < 0) continue;
    fine &= post_send(comm, &give[node].count, 1, node, across, 0);
    fine &= post_receive(comm, &sizes[node], 1, across, node, 0);
  }
  fine &= wait_for_all();
  for (node = 0; node < nodes; node++) {
    int across = node ^ 1 << (d - 1);
    if (!mine(node)) continue;
    if (mine(across)) {
      list none = {NULL, 0};
      got[node] = union_of(&give[across], &none);
      continue;
    }
    got[node] = new_list(sizes[node]);
    fine &= post_send(comm, give[node].keys, give[node].count, node, across, 1);
    fine &= post_receive(comm, got[node].keys, sizes[node], across, node, 1);
  }
  return wait_for_all() && fine;
}

/* Runs one round of dimension d, up to the checkpoint. Returns 0 if a message is missing. */
static int play_round(MPI_Comm comm, unsigned d)
{
  list lists[MAX_NODES], keep[MAX_NODES], give[MAX_NODES], got[MAX_NODES];
  int node, fine, pivot[MAX_NODES] = {0};
  for (node = 0; node < nodes; node++) /* line 8 */
    if (mine(node)) {
      lists[node] = read_list(node); /* line 9 */
      quick_sort(&lists[node]);      /* line 10 */
    }
  fine = broadcast_pivots(comm, d, lists, pivot);
  for (node = 0; node < nodes; node++)
    if (mine(node)) { /* line 15: create_lists */
      list lower = lists[node], higher = lists[node];
      int upper = node >> (d - 1) & 1;
      for (lower.count = 0; lower.count < lists[node].count; lower.count++)
        if (lists[node].keys[lower.count] > pivot[node]) break;
      higher.keys += lower.count;
      higher.count -= lower.count;
      keep[node] = upper ? higher : lower; /* lines 17 to 24: the upper node keeps the higher list */
      give[node] = upper ? lower : higher;
      if (!fine) give[node].count = 0;
    }
  fine &= exchange(comm, d, give, got);
  for (node = 0; node < nodes; node++)
    if (mine(node)) {
      list joined = union_of(&keep[node], &got[node]); /* lines 20 and 24 */
      /* The papers' checkpoint. */
      need(ftsort_store_put(group, node, joined.keys, (size_t)joined.count * sizeof(int)),
           "ftsort_store_put");
      free(joined.keys);
      free(got[node].keys);
      free(lists[node].keys);
    }
  return fine;
}

/* Line 28, and a check of the whole result: in order from node to node, with the same number and sum of keys. */
static int is_right(MPI_Comm comm, int count)
{
  int64_t found[MAX_NODES][4], sum = 0, last = INT64_MIN;
  int node, index, right = 1;
  memset(found, 0, sizeof found);
  for (node = 0; node < nodes; node++)
    if (mine(node)) {
      list block = read_list(node);
      quick_sort(&block);
      found[node][0] = block.count;
      for (index = 0; index < block.count; index++) found[node][1] += block.keys[index];
      found[node][2] = block.count > 0 ? block.keys[0] : 0;
      found[node][3] = block.count > 0 ? block.keys[block.count - 1] : 0;
      free(block.keys);
    }
  if (MPI_Allreduce(MPI_IN_PLACE, found, 4 * nodes, MPI_INT64_T, MPI_SUM, comm) != MPI_SUCCESS) return 0;
  for (node = 0; node < ftsort_ranks(group); node++)
    for (index = 0; index < count; index++) sum += key_of(node, index);
  for (node = 0; node < nodes; node++) {
    if (found[node][0] == 0) continue;
    right &= found[node][2] >= last;
    last = found[node][3];
    sum -= found[node][1];
    found[0][0] += node > 0 ? found[node][0] : 0;
  }
  return right && sum == 0 && found[0][0] == (int64_t)count * ftsort_ranks(group);
}

/* Stores the checkpoint before the first round: the inputs. */
static void deal(int count)
{
  int node, index, committed = 0;
  size_t new_failures = 0;
  while (!committed) {
    need(ftsort_fault_check(group, &new_failures), "ftsort_fault_check");
    if (new_failures > 0) give_up("a rank has failed with its input");
    for (node = 0; node < nodes; node++)
      if (mine(node)) {
        list dealt = new_list(node == self ? count : 0);
        for (index = 0; index < dealt.count; index++) dealt.keys[index] = key_of(node, index);
        need(ftsort_store_put(group, node, dealt.keys, (size_t)dealt.count * sizeof(int)),
             "ftsort_store_put");
        free(dealt.keys);
      }
    need(ftsort_store_commit(group, 1, &committed), "ftsort_store_commit");
  }
}

int main(int argc, char **argv)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  unsigned d, tries = 0;
  int count = argc > 1 ? atoi(argv[1]) : 100000, right;
  MPI_Comm comm;

  if (argc > 2) { /* a directory that all ranks share, as in the papers; otherwise the memory of other ranks */
    config.store = FTSORT_STORE_DIRECTORY;
    config.store_directory = argv[2];
  }
  ftsort_prepare();
  ftsort_allow_faults(); /* a demonstration: FTSORT_FAULTS may kill ranks */
  MPI_Init(&argc, &argv);
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  self = ftsort_rank(group);
  d = ftsort_dimension(group); /* line 2 */
  nodes = 1 << d;
  if (count < 0 || nodes > MAX_NODES || count > INT_MAX / nodes) {
    fprintf(stderr, "usage: workflow COUNT [DIRECTORY], with at most %d ranks\n", MAX_NODES);
    ftsort_leave(group, 2);
  }
  deal(count);
  while (d > 0) { /* line 3 */
    int committed = 0, done;
    need(ftsort_inject(group, tries++), "ftsort_inject"); /* the papers' FaultInject */
    /* Lines 4 to 7, the papers' FaultDetection: the failed set F, which determines the nodes of this rank. */
    need(ftsort_fault_check(group, NULL), "ftsort_fault_check");
    need(ftsort_comm(group, &comm), "ftsort_comm");
    done = play_round(comm, d);
    /* Lines 25 and 26: F', and whether F = F'. */
    need(ftsort_store_commit(group, done, &committed), "ftsort_store_commit");
    if (committed) d--; /* line 27 */
  }
  need(ftsort_comm(group, &comm), "ftsort_comm");
  right = is_right(comm, count);
  printf("survivor %d of %d: %u tries, %s\n", self, (int)ftsort_ranks(group), tries,
         right ? "right" : "wrong");
  fflush(stdout);
  ftsort_leave(group, right ? 0 : 1);
  return 1;
}
