/* Sorts structs: stars, by a number, by a text, by both, and by a comparison function; and once more with a dense
 * result, which has one block of equal size for each survivor.
 *
 *   mpicc -std=c99 records.c -o records -lftsort
 *   mpirun --with-ft ulfm --oversubscribe -np 4 ./records
 *   FTSORT_FAULTS="1@1.send" mpirun --with-ft ulfm --oversubscribe -np 4 ./records */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_store.h"
#include "leave.h"

#define COUNT 10000
#define MAX_NODES 1024

/* A record may be any struct without pointers. */
struct star {
  char name[12];
  float magnitude; /* greater for fainter stars */
  double distance;
  uint32_t id; /* ascends with rank and position, which shows whether equal stars have kept their order */
};

static int faintest_first(void *user, const void *a, const void *b)
{
  float one = ((const struct star *)a)->magnitude, other = ((const struct star *)b)->magnitude;
  return (void)user, (one < other) - (one > other);
}

static int by_name(void *user, const void *a, const void *b)
{
  const struct star *one = (const struct star *)a, *other = (const struct star *)b;
  return (void)user, strncmp(one->name, other->name, sizeof one->name);
}

static int by_both(void *user, const void *a, const void *b)
{
  int order = faintest_first(user, a, b);
  return order ? order : by_name(user, a, b);
}

/* Compares two members: shells around the sun, and in each shell the brightest star first. `user` is the thickness of
 * a shell, the same on all ranks. The order may depend only on the two stars, since any rank compares any of them. */
static int by_shell(void *user, const void *a, const void *b)
{
  double thickness = *(const double *)user;
  int one = (int)(((const struct star *)a)->distance / thickness);
  int other = (int)(((const struct star *)b)->distance / thickness);
  return one != other ? (one > other) - (one < other) : -faintest_first(NULL, a, b);
}

/* Generates the stars of this rank, and those of ranks that failed in an earlier sort if it executes their nodes. */
static struct star *bring_stars(const ftsort *group, size_t *count)
{
  int32_t owner, self = ftsort_rank(group), ranks = ftsort_ranks(group);
  struct star *stars = (struct star *)calloc((size_t)ranks * COUNT, sizeof *stars);
  uint32_t state, i;
  *count = 0;
  for (owner = 0; stars && owner < ranks; owner++) {
    if (ftsort_executor(group, owner) != self) continue;
    state = 2463534242u + 7919u * (uint32_t)owner;
    for (i = 0; i < COUNT; i++) {
      struct star *star = &stars[*count];
      state = state * 1664525u + 1013904223u;
      snprintf(star->name, sizeof star->name, "%c-%u", (int)('A' + (state >> 8) % 26), (unsigned)(state >> 20));
      star->magnitude = (float)(state >> 25) / 10 - 1;
      star->distance = (double)((state >> 8) % 9973) / 10;
      star->id = (uint32_t)(self * ranks) * COUNT + (uint32_t)(*count)++;
    }
  }
  return stars;
}

/* Whether two neighbouring stars are in order. Equal stars must have kept their order. */
static int is_behind(ftsort_compare_fn order, void *user, const struct star *one, const struct star *next)
{
  int which = order(user, one, next);
  return which < 0 || (which == 0 && one->id < next->id);
}

/* The first and the last star of a node's block, and the number of its stars. */
struct ends {
  struct star first, last;
  uint64_t count;
};

/* Collects the ends of all blocks on every survivor, and recovers the blocks of ranks that fail meanwhile. */
static ftsort_status collect_ends(ftsort *group, ftsort_result *result, struct ends *blocks, int nodes)
{
  ftsort_status status;
  size_t i, new_failures = 0;
  ftsort_block block;
  uint32_t arrived = 0;
  MPI_Comm comm;
  do {
    status = ftsort_comm(group, &comm); /* of the survivors */
    if (status == FTSORT_OK) status = ftsort_result_recover(group, result);
    if (status != FTSORT_OK) return status;
    memset(blocks, 0, (size_t)nodes * sizeof *blocks);
    for (i = 0; ftsort_result_block(result, i, &block) == FTSORT_OK; i++) {
      const struct star *stars = (const struct star *)block.data;
      blocks[block.node].count = block.count;
      if (block.count > 0) blocks[block.node].first = stars[0], blocks[block.node].last = stars[block.count - 1];
    }
    /* Exactly one rank has the block of a node; all others have zeros. */
    arrived = MPI_Allreduce(MPI_IN_PLACE, blocks, nodes * (int)sizeof *blocks, MPI_BYTE, MPI_BOR, comm) == MPI_SUCCESS;
    status = ftsort_agree(group, &arrived, &new_failures);
  } while (status == FTSORT_OK && (!arrived || new_failures > 0));
  return status;
}

/* Sorts all stars, and checks their order. The survivors agree on the answer. */
static int sort_stars(ftsort *group, const ftsort_record *record, ftsort_compare_fn order, void *user, int dense)
{
  static struct ends blocks[MAX_NODES];
  const struct star *stars, *top = NULL, *bottom = NULL;
  int32_t node, nodes = 1 << ftsort_dimension(group);
  ftsort_result *result = NULL;
  ftsort_status status;
  struct star *brought;
  uint64_t total = 0;
  uint32_t fine = 1;
  size_t count, i, k;
  ftsort_fault_check(group, NULL); /* learns of failures during a sort of the other group */
  brought = bring_stars(group, &count);
  status = ftsort_run(group, record, brought, brought ? count : COUNT, &result);
  if (status != FTSORT_ERR_MPI && status != FTSORT_ERR_INTERNAL) free(brought); /* otherwise MPI may still read it */
  fine &= !dense || ftsort_result_count(result) == 1;
  if (status == FTSORT_OK) status = collect_ends(group, result, blocks, nodes);
  if (status != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(group));
    ftsort_result_free(result);
    return 0;
  }
  for (k = 0; k < ftsort_result_count(result); k++) {
    ftsort_block block;
    ftsort_result_block(result, k, &block);
    stars = (const struct star *)block.data;
    for (i = 1; i < block.count; i++) fine &= is_behind(order, user, &stars[i - 1], &stars[i]);
  }
  for (node = 0; node < nodes; node++) {
    if (blocks[node].count == 0) continue;
    if (!top) top = &blocks[node].first;
    if (bottom) fine &= is_behind(order, user, bottom, &blocks[node].first);
    bottom = &blocks[node].last;
    total += blocks[node].count;
  }
  fine &= total == ftsort_result_total(result) && total == (uint64_t)ftsort_ranks(group) * COUNT;
  ftsort_result_free(result);
  if (ftsort_agree(group, &fine, NULL) != FTSORT_OK) fine = 0;
  if (top && is_lowest(group))
    printf("%d stars from %s (%.1f, %.0f) to %s (%.1f, %.0f), blocks here: %d, %s\n", (int)total,
           top->name, top->magnitude, top->distance, bottom->name, bottom->magnitude, bottom->distance,
           (int)k, fine ? "in order" : "NOT in order");
  return (int)fine;
}

int main(int argc, char **argv)
{
  double thickness = 250;
  ftsort_record magnitude = FTSORT_RECORD_MEMBER(struct star, magnitude, FTSORT_KEY_F32);
  ftsort_record name = FTSORT_RECORD_TEXT(struct star, name);
  ftsort_key_part keys[] = {FTSORT_KEY_PART(struct star, magnitude, FTSORT_KEY_F32),
                            FTSORT_KEY_PART(struct star, name, FTSORT_KEY_TEXT)};
  ftsort_record both = FTSORT_RECORD_LIST(struct star, keys);
  ftsort_record shell = FTSORT_RECORD_COMPARE(struct star, by_shell, &thickness);
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group = NULL, *even = NULL;
  int fine;
  magnitude.descending = keys[0].descending = 1; /* the greatest number first */
  shell.stable = 1; /* an algorithm that does not keep the order of equal stars refuses this */
  group = make_group(&argc, &argv, NULL);
  config.dense = 1; /* one block of equal size for each survivor, also after failures */
  if (ftsort_init(MPI_COMM_WORLD, &config, &even) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (1 << ftsort_dimension(group) > MAX_NODES) leave_with(group, 2);
  fine = sort_stars(group, &magnitude, faintest_first, NULL, 0);
  fine &= sort_stars(group, &name, by_name, NULL, 0);
  fine &= sort_stars(group, &both, by_both, NULL, 0);
  fine &= sort_stars(group, &shell, by_shell, &thickness, 0);
  fine &= sort_stars(even, &shell, by_shell, &thickness, 1);
  ftsort_free(even);
  leave_with(group, fine ? 0 : 1);
  return 1;
}
