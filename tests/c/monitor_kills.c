/* Makes a rank slow until it is excluded from sorts, and then kills it, or its executor, during a sort.
 *
 *   monitor_kills thread|foreground SLOW VICTIM WHEN      (under mpirun)
 *
 * The tests of rank SLOW are slow until the rank is excluded. Rank VICTIM kills itself at the event of the WHENth
 * committed round after the exclusion, in the same sort or in later ones. The last round of a sort does not count,
 * because it releases the result.
 *
 * All ranks know all inputs, so that each rank compares its blocks with the expected ones, bit for bit. The result
 * of the sort in which the victim fails is complete, because inputs are committed before. If SLOW is neither the
 * victim nor the only survivor, it comes back. Prints "monitor_kills: fine" on a survivor if all results are right,
 * and "monitor_kills: skipped" if MPI does not grant threads. */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitored.h"

#define MOST_SORTS 20000
#define COUNT 3000

static int slow, victim, when;
static int is_excluded, is_back, has_failed, rounds_since;

static void note(void *user, const ftsort_event *event)
{
  (void)user;
  if (event->kind == FTSORT_EVENT_EXCLUDED && event->rank == slow) is_excluded = 1;
  if (event->kind == FTSORT_EVENT_REJOINED && event->rank == slow) is_back = 1;
  if (event->kind == FTSORT_EVENT_FAILURE && event->rank == victim) has_failed = 1;
  /* A rank that fails after the release of its result is missing from the next sort, with its input. */
  if (event->kind != FTSORT_EVENT_ROUND || !is_excluded || event->round + 1 == event->rounds) return;
  if (++rounds_since == when && rank == victim) raise(SIGKILL);
}

static uint32_t input_of(int sort, int owner, int index)
{
  uint32_t x = (uint32_t)sort * 2654435761u + (uint32_t)(owner * COUNT + index) * 40503u;
  x ^= x >> 15;
  x *= 2246822519u;
  return x ^ x >> 13;
}

static int ascending(const void *one, const void *other)
{
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

/* Sorts, and compares this rank's blocks with a sort of all inputs. */
static void sort(ftsort *group, int number)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  uint32_t input[COUNT], *all = (uint32_t *)malloc((size_t)ranks * COUNT * sizeof *all);
  ftsort_result *result = NULL;
  int had_failed = has_failed, owner, i;
  size_t total = 0, block;
  ftsort_status status;

  for (owner = 0; owner < ranks; owner++) {
    for (i = 0; i < COUNT && !(owner == victim && had_failed); i++) all[total++] = input_of(number, owner, i);
  }
  qsort(all, total, sizeof *all, ascending);
  for (i = 0; i < COUNT; i++) input[i] = input_of(number, rank, i);
  status = ftsort_run(group, &plain, input, COUNT, &result);
  if (status != FTSORT_OK) fprintf(stderr, "rank %d, sort %d: %s\n", rank, number, ftsort_last_error(group));
  EXPECT(status == FTSORT_OK);
  if (status == FTSORT_OK) {
    EXPECT(ftsort_result_total(result) == total);
    for (block = 0; block < ftsort_result_count(result); block++) {
      ftsort_block part;
      EXPECT(ftsort_result_block(result, block, &part) == FTSORT_OK);
      EXPECT(part.offset + part.count <= total &&
             memcmp(part.data, all + part.offset, part.count * sizeof *all) == 0);
    }
  }
  ftsort_result_free(result);
  free(all);
}

int main(int argc, char **argv)
{
  int mode, sorts = 0, more, comes_back;
  uint32_t fine;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort_monitor_options watch;
  ftsort *group;

  if (argc < 5) return 2;
  slow = atoi(argv[2]);
  victim = atoi(argv[3]);
  when = atoi(argv[4]);
  mode = start("monitor_kills", &argc, &argv);
  if (mode < 0) return 0;
  config.on_event = note;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) return 1;
  watch = options_for(mode);
  EXPECT(ftsort_monitor_start(group, &watch, NULL) == FTSORT_OK);
  for (; sorts < MOST_SORTS && failures == 0 && !has_failed; sorts++) {
    is_slow = rank == slow && sorts > 20;
    sort(group, sorts);
  }
  EXPECT(is_excluded && has_failed);
  is_slow = 0;
  /* The only survivor executes all nodes, recommended or not, and gets no event. */
  comes_back = slow != victim && ranks > 2;
  for (more = 0; more < MOST_SORTS && failures == 0 && comes_back && !is_back; more++) sort(group, sorts++);
  EXPECT(is_back == comes_back);
  for (more = 0; more < 5; more++) sort(group, sorts++);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  sort(group, sorts);
  fine = failures == 0;
  EXPECT(ftsort_agree(group, &fine, NULL) == FTSORT_OK);
  if (fine && rank == (victim == 0 ? 1 : 0)) puts("monitor_kills: fine");
  fflush(stdout);
  ftsort_leave(group, failures > 0);
  return 1;
}
