/* Tests monitors: arguments, and a rank that is slow in tests for a while. It is excluded from sorts or gets a smaller
 * share, and comes back.
 *
 *   monitor thread|foreground arguments|slow|weights|gain [RANK]      (under mpirun; gain: in the foreground)
 *
 * slow:    the tests of rank RANK are slow until it is excluded
 * weights: they are slow until its share of the result is smaller than the shares of other ranks, and then as fast
 *          as the others until its share is as large
 * gain:    they are a little slower, which does not make it worth while to exclude the rank, and then much slower
 *
 * Sorts go on all the time, and each is verified. Prints "monitor: fine" on rank 0 if all results are right, and
 * "monitor: skipped" if MPI does not grant threads. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ftsort_verify.h"
#include "monitored.h"
#include "signal_masks.h"

#define MOST_SORTS 20000
#define MOST_WAITS 500
#define COUNT 5000

static unsigned excluded, rejoined; /* a bit for each rank */
static size_t records; /* of this rank in the last sort */

static void note(void *user, const ftsort_event *event)
{
  (void)user;
  if (event->kind == FTSORT_EVENT_EXCLUDED) excluded |= 1u << event->rank;
  if (event->kind == FTSORT_EVENT_REJOINED) rejoined |= 1u << event->rank;
}

/* Sorts numbers, verifies the result, and returns the number of blocks of this rank. */
static size_t sort(ftsort *group)
{
  static const ftsort_record plain = FTSORT_RECORD_PLAIN(uint32_t, FTSORT_KEY_U32);
  static uint32_t x = 1;
  uint32_t input[COUNT];
  ftsort_result *result = NULL;
  uint64_t violations = 1;
  size_t blocks, i;
  for (i = 0; i < COUNT; i++) input[i] = x = x * 1664525u + 1013904223u + (uint32_t)rank;
  EXPECT(ftsort_run(group, &plain, input, COUNT, &result) == FTSORT_OK);
  EXPECT(ftsort_result_verify(group, result, input, COUNT, &violations) == FTSORT_OK);
  EXPECT(violations == 0);
  blocks = ftsort_result_count(result);
  for (records = 0, i = 0; i < blocks; i++) {
    ftsort_block block;
    EXPECT(ftsort_result_block(result, i, &block) == FTSORT_OK);
    records += block.count;
  }
  ftsort_result_free(result);
  return blocks;
}

/* Whether `yes` is true on all ranks. */
static int all_say(ftsort *group, int yes)
{
  uint32_t word = yes != 0;
  EXPECT(ftsort_agree(group, &word, NULL) == FTSORT_OK);
  return word != 0;
}

static void arguments(ftsort *group, int mode)
{
  const ftsort_monitor *monitor = NULL, *second = NULL;
  ftsort_monitor_options config = options_for(mode);
  ftsort_monitor_view view = FTSORT_MONITOR_VIEW_INIT;
  uint64_t sent = 1, answered = 1;
  int i, answers = 0;

  EXPECT(ftsort_monitor_start(NULL, NULL, NULL) == FTSORT_ERR_ARGUMENT);
  config.alpha = 1.5;
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "options.alpha is 1.5") != NULL);
  EXPECT(monitor == NULL);
  config = options_for(mode);
  config.mode = 3;
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "options.mode is 3") != NULL);
  config = options_for(mode);
  config.assignment = rank == 0 ? 7 : 0;
  EXPECT(ftsort_monitor_start(group, &config, NULL) ==
         (rank == 0 ? FTSORT_ERR_ARGUMENT : FTSORT_ERR_PEER_ARGUMENT));
  config = options_for(mode);
  config.zeta = rank == 0 ? 7 : 6;
  EXPECT(ftsort_monitor_start(group, &config, NULL) == (ranks > 1 ? FTSORT_ERR_ARGUMENT : FTSORT_OK));
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  config = options_for(mode);
  config.first_ms = config.plus_ms = 1e6; /* However busy the machine is, no rank is slow. */
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_OK);
  EXPECT(monitor != NULL);
  EXPECT(ftsort_monitor_start(group, &config, &second) == FTSORT_ERR_STATE);
  EXPECT(second == NULL);
  /* On a busy machine the first answers may take a while. */
  for (i = 0; i < 10 || (i < MOST_WAITS && !answers); i++) {
    EXPECT(sort(group) >= 1);
    usleep(20000);
    EXPECT(ftsort_monitor_get_view(monitor, (rank + 1) % ranks, &view) == FTSORT_OK);
    ftsort_monitor_cost(monitor, NULL, &answered);
    answers = all_say(group, ranks == 1 || (view.last_reply > 0 && (answered > 0 || mode != FTSORT_MONITOR_THREAD)));
  }
  /* That of the monitor, and the one that answers the probes of other ranks. */
  EXPECT(threads_without_signals() == (mode == FTSORT_MONITOR_THREAD) + (ranks > 1));
  EXPECT(ftsort_monitor_get_view(NULL, 0, &view) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_monitor_get_view(monitor, 0, NULL) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_monitor_get_view(monitor, -1, &view) == FTSORT_ERR_ARGUMENT);
  EXPECT(ftsort_monitor_get_view(monitor, ranks, &view) == FTSORT_ERR_ARGUMENT);
  view.struct_size = 4;
  EXPECT(ftsort_monitor_get_view(monitor, 0, &view) == FTSORT_ERR_ARGUMENT);
  view.struct_size = sizeof view;
  EXPECT(ftsort_monitor_get_view(monitor, (rank + 1) % ranks, &view) == FTSORT_OK);
  EXPECT(view.counter % 2 != (unsigned)view.recommended);
  EXPECT(ranks == 1 || view.last_reply > 0);
  EXPECT(view.threshold > 0);
  EXPECT(ftsort_monitor_cost(NULL, NULL, NULL) == -1);
  EXPECT(ftsort_monitor_cost(monitor, &sent, &answered) == (mode == FTSORT_MONITOR_THREAD));
  EXPECT((sent > 0) == (mode == FTSORT_MONITOR_THREAD && ranks > 1));
  EXPECT((answered > 0) == (mode == FTSORT_MONITOR_THREAD && ranks > 1));
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  EXPECT(sort(group) >= 1);
}

static void slow(ftsort *group, int mode, int victim)
{
  ftsort_monitor_options config = options_for(mode);
  size_t blocks = 0;
  int sorts;

  EXPECT(ftsort_monitor_start(group, &config, NULL) == FTSORT_OK);
  for (sorts = 0; sorts < MOST_SORTS && !(excluded >> victim & 1); sorts++) {
    is_slow = rank == victim && sorts > 20;
    blocks = sort(group);
  }
  EXPECT(excluded >> victim & 1);
  /* A rank that is excluded before or during a sort has no block at its end. */
  EXPECT(rank != victim || blocks == 0);
  for (; sorts < MOST_SORTS && !(rejoined >> victim & 1); sorts++) {
    is_slow = 0;
    blocks = sort(group);
  }
  EXPECT(rejoined >> victim & 1);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  EXPECT(sort(group) >= 1);
}

/* A rank that is three times as slow gets a third of a share. */
static void weights(ftsort *group, int mode, int victim)
{
  ftsort_monitor_options config = options_for(mode);
  const ftsort_monitor *monitor = NULL;
  ftsort_monitor_view view = FTSORT_MONITOR_VIEW_INIT;
  int sorts, less = 0, equal = 0;

  takes = 5000;
  takes_slow = 15000;
  config.interval_ms = 100;
  config.alpha = 0.5;
  config.sharing = 2;
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_ERR_ARGUMENT);
  EXPECT(strstr(ftsort_last_error(group), "options.sharing is 2") != NULL);
  config.sharing = FTSORT_SHARING_WEIGHTS;
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_OK);
  for (sorts = 0; sorts < MOST_SORTS && !less; sorts++) {
    is_slow = rank == victim && sorts > 5;
    EXPECT(sort(group) >= 1);
    less = all_say(group, rank != victim || records < COUNT * 7 / 10);
  }
  EXPECT(less);
  EXPECT(ftsort_monitor_get_view(monitor, victim, &view) == FTSORT_OK);
  EXPECT(view.weight > 0 && view.weight < 0.75);
  is_slow = 0;
  for (; sorts < MOST_SORTS && !equal; sorts++) {
    EXPECT(sort(group) >= 1);
    equal = all_say(group, rank != victim || records > COUNT * 9 / 10);
  }
  EXPECT(equal);
  EXPECT(excluded == 0);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  EXPECT(sort(group) >= 1);
  EXPECT(records > COUNT * 9 / 10 && records < COUNT * 11 / 10);
}

/* A rank that is not recommended is excluded only if its work takes longer than twice the work of an executor. */
static void gain(ftsort *group, int victim)
{
  ftsort_monitor_options config = options_for(FTSORT_MONITOR_FOREGROUND);
  const ftsort_monitor *monitor = NULL;
  ftsort_monitor_view view = FTSORT_MONITOR_VIEW_INIT;
  double start = MPI_Wtime();
  int sorts, seen = 0;

  takes = 20000;
  takes_slow = 32000;
  config.interval_ms = 100;
  config.alpha = 0.5;
  /* The threshold is 0.3 s above the usual time, which does not justify an exclusion. */
  config.factor = 1;
  config.beta = 1e-9;
  config.plus_ms = 300;
  config.gain = 1;
  EXPECT(ftsort_monitor_start(group, &config, &monitor) == FTSORT_OK);
  for (sorts = 0; sorts < MOST_SORTS && seen < 10; sorts++) {
    /* Normal for one second, then slow for three: a busy machine may have made the rank as slow before. */
    is_slow = rank == victim && (long)(MPI_Wtime() - start) % 4 > 0;
    EXPECT(sort(group) >= 1);
    EXPECT(ftsort_monitor_get_view(monitor, victim, &view) == FTSORT_OK);
    seen = all_say(group, !view.recommended) ? seen + 1 : 0;
  }
  EXPECT(seen == 10);
  EXPECT(!(excluded >> victim & 1));
  is_slow = rank == victim;
  takes_slow = 240000;
  for (; sorts < MOST_SORTS && !(excluded >> victim & 1); sorts++) sort(group);
  EXPECT(excluded >> victim & 1);
  EXPECT(ftsort_monitor_stop(group) == FTSORT_OK);
  EXPECT(sort(group) >= 1);
}

int main(int argc, char **argv)
{
  const char *part = argc > 2 ? argv[2] : "";
  int mode = start("monitor", &argc, &argv), all;
  ftsort_config config = FTSORT_CONFIG_INIT;
  ftsort *group;

  if (mode < 0) return 0;
  config.on_event = note;
  if (ftsort_init(MPI_COMM_WORLD, &config, &group) != FTSORT_OK) return 1;
  if (strcmp(part, "arguments") == 0) {
    arguments(group, mode);
  } else if (strcmp(part, "slow") == 0) {
    slow(group, mode, argc > 3 ? atoi(argv[3]) : ranks - 1);
  } else if (strcmp(part, "weights") == 0) {
    weights(group, mode, argc > 3 ? atoi(argv[3]) : ranks - 1);
  } else if (strcmp(part, "gain") == 0) {
    gain(group, argc > 3 ? atoi(argv[3]) : ranks - 1);
  } else {
    return 2;
  }
  all = failures;
  {
    uint32_t fine = failures == 0;
    EXPECT(ftsort_agree(group, &fine, NULL) == FTSORT_OK);
    if (fine && rank == 0) puts("monitor: fine");
  }
  fflush(stdout);
  ftsort_leave(group, all > 0);
  return 1;
}
