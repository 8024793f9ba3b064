/* Sorts with the tree communication of Leu and Kuo (1996 paper, Section 2.1): each rank sorts its part, and a tree that
 * avoids faulty links merges the parts towards one rank. For more data than one rank can hold, use ftsort_run (its
 * result stays distributed) and ftsort_gather_sorted.
 *
 *   tree_sort COUNT [LINKS [SINK [WAY]]]     LINKS: pairs of ranks, as in 0-1,2-3, or - for none
 *                                            WAY around a faulty link: delegate, reroute or partition
 *
 *   ftsort-mpirun -np 4 ./tree_sort 100000 0-1,1-3 2
 *   FTSORT_FAULTS="2@1.send" ftsort-mpirun -np 4 ./tree_sort 100000        (kills rank 2 in round 1)
 *
 * Any rank can generate the part of a node from the node's number. If a rank fails before its part is stored, the
 * executor of its node brings this part in the next call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_tree.h"
#include "leave.h"
#include "links.h"

static ftsort *group;
static int self;

static int32_t key_of(int node, long index)
{
  uint64_t x = ((uint64_t)node << 40) + (uint64_t)index + 1;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return (int32_t)(uint32_t)(x >> 32);
}

static int ascending(const void *a, const void *b)
{
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static int32_t way_of(const char *name)
{
  static const char *const names[] = {"delegate", "reroute", "partition"};
  int32_t way;
  for (way = FTSORT_TREE_DELEGATE; way <= FTSORT_TREE_PARTITION; way++)
    if (strcmp(name, names[way]) == 0) return way;
  return -1; /* refused by ftsort_tree_merge */
}

/* Generates the sorted keys of all nodes that this rank executes: its home node, and those of failed ranks. */
static int32_t *my_keys(long count, size_t *total)
{
  int32_t *keys = NULL, *more;
  int node;
  *total = 0;
  for (node = 0; node < ftsort_ranks(group); node++) {
    long i;
    if (ftsort_executor(group, node) != self) continue;
    more = (int32_t *)realloc(keys, (*total + (size_t)count + 1) * sizeof *keys);
    if (more == NULL) fail_alone("tree_sort: no memory for the keys");
    keys = more;
    for (i = 0; i < count; i++) keys[(*total)++] = key_of(node, i);
  }
  qsort(keys, *total, sizeof *keys, ascending);
  return keys;
}

/* Whether all keys are there, and in order. */
static int is_right(const int32_t *keys, size_t found, long count)
{
  uint64_t sum = 0, expected = 0;
  size_t i;
  int node, right = found == (size_t)count * (size_t)ftsort_ranks(group);
  long k;
  for (i = 0; i < found; i++) {
    sum += (uint32_t)keys[i];
    if (i > 0 && keys[i - 1] > keys[i]) right = 0;
  }
  for (node = 0; node < ftsort_ranks(group); node++)
    for (k = 0; k < count; k++) expected += (uint32_t)key_of(node, k);
  return right && sum == expected;
}

int main(int argc, char **argv)
{
  ftsort_record record = FTSORT_RECORD_PLAIN(int32_t, FTSORT_KEY_I32);
  ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
  ftsort_result *result = NULL;
  ftsort_status status;
  int32_t links[2 * MAX_LINKS];
  long count = argc > 1 ? atol(argv[1]) : 100000;
  double start, seconds;
  int right = 1;

  group = make_group(&argc, &argv, NULL);
  self = ftsort_rank(group);
  options.operation = FTSORT_TREE_SORTED;
  options.record = &record;
  options.link_count = argc > 2 ? read_links(argv[2], links) : 0;
  options.links = links;
  options.has_sink = argc > 3;
  options.sink = argc > 3 ? atoi(argv[3]) : 0;
  options.reroute = argc > 4 ? way_of(argv[4]) : FTSORT_TREE_DELEGATE;

  do {
    size_t total;
    int32_t *keys = my_keys(count, &total);
    start = MPI_Wtime();
    status = ftsort_tree_merge(group, &options, keys, total * sizeof *keys, &result);
    seconds = MPI_Wtime() - start;
    free(keys);
  } while (status == FTSORT_ERR_DATA_LOST);
  check(group, status);

  if (result != NULL) { /* this rank executes the sink */
    ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
    ftsort_block block; /* its elements are bytes */
    size_t numbers;
    ftsort_result_block(result, 0, &block);
    ftsort_tree_get_info(group, &info);
    numbers = block.count / sizeof(int32_t);
    right = is_right((const int32_t *)block.data, numbers, count);
    printf("rank %d: %lu numbers at node %d, %lu faulty links in the tree", self,
           (unsigned long)numbers, (int)info.sink, (unsigned long)info.faulty_links);
    printf(", %lu detours, %.6f seconds, %s\n", (unsigned long)info.detours, seconds, right ? "right" : "WRONG");
    ftsort_result_free(result);
  }
  ftsort_leave(group, right ? 0 : 1);
  return 1;
}
