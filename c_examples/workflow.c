/* The papers' Algorithm 1, a fault-tolerant HyperQuickSort (Camargo and Duarte 2024), with the names of its pseudocode:
 * ftsort_original.h has cover, partner, FaultDetection, FaultInject, checkpoint and readCheckpoint. Comments name the
 * lines of Algorithm 1. For sorting alone, ftsort_run is much shorter.
 *
 *   FTSORT_FAULTS="1@0 2@1" ftsort-mpirun -np 4 ./workflow 1000000
 *
 * A rank always sends the messages of a round, if only empty ones, so that no rank waits for a survivor without end. A
 * receive from a failed rank ends with an error, and the round is repeated. */
#include <limits.h>

#include "original/ftsort_original.h"

#define MAX_NODES 64

typedef struct list {
  int *keys;
  int count;
} list;

static int self, nodes;

static list new_list(int count)
{
  list made;
  made.count = count;
  made.keys = (int *)malloc((count > 0 ? (size_t)count : 1) * sizeof(int));
  if (made.keys == NULL) {
    fprintf(stderr, "rank %d: no memory for %d keys\n", self, count);
    original_fail();
  }
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

/* Whether k is in the set I of this rank (lines 4 to 7). */
static int mine(int k) { return cover(k) == self; }

/* Line 9. */
static list read_list(int k)
{
  list read;
  read.keys = readCheckpoint(k, &read.count);
  return read;
}

/* Line 11: the fault-free node with the smallest identifier in node k's d-dimensional hypercube. If there is none, its
 * first node, which a cover from outside executes. */
static int root_of(int k, int d)
{
  int first = k >> d << d, other;
  for (other = first; other < first + (1 << d); other++)
    if (!ftsort_is_failed(original_group, other)) return other;
  return first;
}

/* Posts the messages of a round, and waits for them. Returns 0 if one has not arrived. */
static MPI_Request requests[4 * MAX_NODES];
static int posted;

static int post_send(MPI_Comm comm, const void *data, int count, int from, int to, int kind)
{
  return MPI_Isend(data, count, MPI_INT, original_rank_of(to), kind * MAX_NODES * MAX_NODES + from * MAX_NODES + to,
                   comm, &requests[posted++]) == MPI_SUCCESS;
}

static int post_receive(MPI_Comm comm, void *data, int count, int from, int to, int kind)
{
  return MPI_Irecv(data, count, MPI_INT, original_rank_of(from),
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
static int broadcast_pivots(MPI_Comm comm, int d, const list *lists, int *pivot)
{
  int k, fine = 1, medians[MAX_NODES];
  for (k = 0; k < nodes; k++) {
    int root = root_of(k, d);
    if (mine(root)) medians[k] = lists[root].count > 0 ? lists[root].keys[lists[root].count / 2] : 0;
    if (mine(root) && mine(k)) pivot[k] = medians[k];
    else if (mine(root)) fine &= post_send(comm, &medians[k], 1, root, k, 0);
    else if (mine(k)) fine &= post_receive(comm, &pivot[k], 1, root, k, 0);
  }
  return wait_for_all() && fine;
}

/* Lines 16 to 24 for every node of this rank: sends one list to the partner in dimension d, and receives the partner's
 * list in `got`. A node that this rank executes as well gets its list by a copy, which the paper omits. The condition of
 * line 16, that c(k,d) has a fault-free node, is omitted: if node k and all of c(k,d) have failed, two other ranks may
 * execute the two lists, which must be exchanged all the same. */
static int exchange(MPI_Comm comm, int d, const list *give, list *got)
{
  int k, fine = 1, sizes[MAX_NODES];
  for (k = 0; k < nodes; k++) {
    int across = k ^ 1 << (d - 1);
    sizes[k] = 0;
    if (!mine(k) || mine(across)) continue;
    fine &= post_send(comm, &give[k].count, 1, k, across, 0);
    fine &= post_receive(comm, &sizes[k], 1, across, k, 0);
  }
  fine &= wait_for_all();
  for (k = 0; k < nodes; k++) {
    int across = k ^ 1 << (d - 1);
    if (!mine(k)) continue;
    if (mine(across)) {
      got[k] = new_list(give[across].count);
      memcpy(got[k].keys, give[across].keys, (size_t)give[across].count * sizeof(int));
      continue;
    }
    got[k] = new_list(sizes[k]);
    fine &= post_send(comm, give[k].keys, give[k].count, k, across, 1);
    fine &= post_receive(comm, got[k].keys, sizes[k], across, k, 1);
  }
  return wait_for_all() && fine;
}

/* Lines 8 to 24, and the checkpoints. */
static void play_round(int d)
{
  MPI_Comm comm = original_comm();
  list lists[MAX_NODES], keep[MAX_NODES], give[MAX_NODES], got[MAX_NODES];
  int k, fine, pivot[MAX_NODES] = {0};
  for (k = 0; k < nodes; k++) /* line 8 */
    if (mine(k)) {
      lists[k] = read_list(k); /* line 9 */
      quick_sort(&lists[k]);   /* line 10 */
    }
  fine = broadcast_pivots(comm, d, lists, pivot);
  for (k = 0; k < nodes; k++)
    if (mine(k)) { /* line 15: create_lists */
      list lower = lists[k], higher = lists[k];
      int upper = k >> (d - 1) & 1;
      for (lower.count = 0; lower.count < lists[k].count; lower.count++)
        if (lists[k].keys[lower.count] > pivot[k]) break;
      higher.keys += lower.count;
      higher.count -= lower.count;
      keep[k] = upper ? higher : lower; /* lines 17 to 24: the upper node keeps the higher list */
      give[k] = upper ? lower : higher;
      if (!fine) give[k].count = 0;
    }
  fine &= exchange(comm, d, give, got);
  for (k = 0; k < nodes; k++)
    if (mine(k)) {
      list joined = union_of(&keep[k], &got[k]); /* lines 20 and 24 */
      checkpoint(k, joined.keys, joined.count);
      free(joined.keys);
      free(got[k].keys);
      free(lists[k].keys);
    }
  if (!fine) original_missing();
}

/* Line 28, and a check of the whole result: in order from node to node, with the same number and sum of keys. The answer
 * counts if no rank has failed meanwhile, as the results of a round. */
static int is_right(int ranks, int count)
{
  int64_t found[MAX_NODES][4], sum = 0, last = INT64_MIN;
  int k, index, right = 1;
  memset(found, 0, sizeof found);
  for (k = 0; k < nodes; k++)
    if (mine(k)) {
      list block = read_list(k);
      quick_sort(&block);
      found[k][0] = block.count;
      for (index = 0; index < block.count; index++) found[k][1] += block.keys[index];
      found[k][2] = block.count > 0 ? block.keys[0] : 0;
      found[k][3] = block.count > 0 ? block.keys[block.count - 1] : 0;
      free(block.keys);
    }
  if (MPI_Allreduce(MPI_IN_PLACE, found, 4 * nodes, MPI_INT64_T, MPI_SUM, original_comm()) != MPI_SUCCESS)
    original_missing();
  for (k = 0; k < ranks; k++)
    for (index = 0; index < count; index++) sum += key_of(k, index);
  for (k = 0; k < nodes; k++) {
    if (found[k][0] == 0) continue;
    right &= found[k][2] >= last;
    last = found[k][3];
    sum -= found[k][1];
    found[0][0] += k > 0 ? found[k][0] : 0;
  }
  return right && sum == 0 && found[0][0] == (int64_t)count * ranks;
}

/* Stores the checkpoint before the first round: the inputs. */
static void deal(int ranks, int count)
{
  int k, index;
  for (k = 0; k < nodes; k++)
    if (mine(k)) {
      list dealt = new_list(k < ranks ? count : 0);
      for (index = 0; index < dealt.count; index++) dealt.keys[index] = key_of(k, index);
      checkpoint(k, dealt.keys, dealt.count);
      free(dealt.keys);
    }
}

int main(int argc, char **argv)
{
  int count = argc > 1 ? atoi(argv[1]) : 100000, F, d, tries = 0, ranks, right;
  /* A directory that all ranks share, as in the papers; otherwise the memory of other ranks. */
  self = original_start(&argc, &argv, argc > 2 ? argv[2] : NULL);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  nodes = original_nodes();
  if (count < 0 || nodes > MAX_NODES || count > INT_MAX / nodes) {
    fprintf(stderr, "usage: workflow COUNT [DIRECTORY [files]], with at most %d ranks\n", MAX_NODES);
    original_end(2);
  }
  if (argc > 3) original_keep_files();
  do {
    F = FaultDetection();
    deal(ranks, count);
  } while (FaultDetection() != F);
  d = original_dimension(); /* line 2 */
  while (d > 0) {           /* line 3 */
    FaultInject(tries++);
    F = FaultDetection(); /* lines 4 to 7: F determines the nodes of this rank */
    play_round(d);
    if (FaultDetection() == F) d = d - 1; /* lines 25 to 27 */
  }
  do {
    F = FaultDetection();
    right = is_right(ranks, count);
  } while (FaultDetection() != F);
  printf("survivor %d of %d: %d tries, %s\n", self, ranks, tries, right ? "right" : "wrong");
  fflush(stdout);
  original_end(right ? 0 : 1);
  return 1;
}
