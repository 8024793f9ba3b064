/* c_examples/restart_sort.c with ranks that begin at the same announced instant, for a script that kills them. Each rank
 * says whether it finds the result of an earlier job ("found 1") and that the result is stored ("committed 1"). One rank
 * gathers the result, compares it with numbers that qsort has sorted, and says "the whole result is right". The result
 * stays in the directory. */
#define _XOPEN_SOURCE 700
#include <string.h>

#include "outside.h"
#include "ftsort.h"
#include "ftsort_store.h"
#include "ftsort_tree.h"

static uint64_t number_at(uint64_t place);

/* The records that this rank has received. */
typedef struct {
  uint64_t *numbers;
  size_t count, most;
} gathered;

static int compare(const void *one, const void *other)
{
  const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

static int receive(void *user, const void *records, size_t count)
{
  gathered *all = (gathered *)user;
  if (count > all->most - all->count) return 1;
  memcpy(all->numbers + all->count, records, count * sizeof *all->numbers);
  all->count += count;
  return 0;
}

/* Leaves with 1, and says so, if a rank has failed: a result without its records would be no result for the next job. */
static void leave_after_failures(ftsort *group)
{
  int other;
  for (other = 0; other < ftsort_ranks(group); other++) {
    if (!ftsort_is_failed(group, other)) continue;
    say(1, "rank %d failed before the sort\n", other);
    ftsort_leave(group, 1);
  }
}

static ftsort_status open_together(ftsort *group, const char *name, int *found)
{
  ftsort_status status;
  start_together(ftsort_rank(group), ftsort_ranks(group));
  status = ftsort_store_open(group, name, found);
  if (status == FTSORT_OK && *found) say(1, "found 1\n");
  return status;
}

static ftsort_status run_and_compare(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                                     ftsort_result **result)
{
  ftsort_status status;
  gathered all = {NULL, 0, 0};
  uint64_t *sorted, i;
  leave_after_failures(group);
  status = ftsort_run_stored(group, record, data, count, result);
  if (status != FTSORT_OK) return status;
  say(1, "committed 1\n");
  all.most = (size_t)ftsort_result_total(*result);
  all.numbers = (uint64_t *)malloc(all.most * sizeof *all.numbers);
  sorted = (uint64_t *)malloc(all.most * sizeof *sorted);
  if (all.numbers == NULL || sorted == NULL) abort();
  status = ftsort_gather_sorted(group, NULL, *result, receive, &all);
  if (status == FTSORT_OK && all.count == all.most) {
    for (i = 0; i < all.most; i++) sorted[i] = number_at(i);
    qsort(sorted, all.most, sizeof *sorted, compare);
    say(1, "the whole result is %s\n", memcmp(sorted, all.numbers, all.most * sizeof *sorted) ? "wrong" : "right");
  }
  free(all.numbers);
  free(sorted);
  return status;
}

static ftsort_status keep(ftsort *group)
{
  (void)group;
  return FTSORT_OK;
}

#define ftsort_store_open open_together
#define ftsort_run_stored run_and_compare
#define ftsort_store_clear keep
#include "../../c_examples/restart_sort.c"
