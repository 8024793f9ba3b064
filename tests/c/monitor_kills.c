/* A rank is slow until it is left out of sorts, and then it, or the one that covers it, is killed in the middle
 * of a sort.
 *
 *   monitor_kills thread|foreground SLOW VICTIM WHEN      (under mpirun)
 *
 * Rank SLOW takes long for its tests until it is left out; rank VICTIM kills itself when it is told of the WHENth
 * committed round after that, of the sort in which it happens or of later ones, but for those that make results.
 * All inputs are known to all ranks, so that each compares its blocks with what must be there, bit for bit; that
 * of the sort in which the victim dies is whole, since inputs were committed before. If it is not the victim, and
 * not the last one left, SLOW comes back. Prints "monitor_kills: fine" on a survivor if all is right, and
 * "monitor_kills: skipped" if MPI allows no threads. */
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
static int is_out, is_back, died, rounds_out;

static void note(void *user, const ftsort_event *event)
{
  (void)user;
  if (event->kind == FTSORT_EVENT_EXCLUDED && event->rank == slow) is_out = 1;
  if (event->kind == FTSORT_EVENT_REJOINED && event->rank == slow) is_back = 1;
  if (event->kind == FTSORT_EVENT_FAILURE && event->rank == victim) died = 1;
  /* Who dies with its result is found dead in the next sort, to which it has brought nothing. */
  if (event->kind != FTSORT_EVENT_ROUND || !is_out || event->round + 1 == event->rounds) return;
  if (++rounds_out == when && rank == victim) raise(SIGKILL);
}

static uint32_t input_of(int sort, int of, int index)
{
  uint32_t x = (uint32_t)sort * 2654435761u + (uint32_t)(of * COUNT + index) * 40503u;
  x ^= x >> 15;
  x *= 2246822519u;
  return x ^ x >> 13;
}

static int ascending(const void *one, const void *other)
{
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

/* Sorts, and compares this rank's blocks with the whole. */
static void sort(ftsort *group, int number)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  uint32_t input[COUNT], *all = (uint32_t *)malloc((size_t)ranks * COUNT * sizeof *all);
  ftsort_result *result = NULL;
  int was_dead = died, of, i;
  size_t total = 0, block;
  ftsort_status status;

  for (of = 0; of < ranks; of++) {
    for (i = 0; i < COUNT && !(of == victim && was_dead); i++) all[total++] = input_of(number, of, i);
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
  watch = wanted(mode);
  EXPECT(ftsort_monitor_start(group, &watch, NULL) == FTSORT_OK);
  for (; sorts < MOST_SORTS && failures == 0 && !died; sorts++) {
    is_slow = rank == slow && sorts > 20;
    sort(group, sorts);
  }
  EXPECT(is_out && died);
  is_slow = 0;
  /* The last one left executes everything, recommended or not, and is told nothing. */
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
