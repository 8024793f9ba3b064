/* c_examples/restart_rounds.c with ranks that begin at the same announced instant, for a script that kills them. Each
 * rank says the number of rounds before the states that it finds ("found N"), and of those that are stored
 * ("committed N"). */
#define _XOPEN_SOURCE 700
#include "outside.h"
#include "ftsort_rounds.h"
#include "ftsort_store.h"

static ftsort_absorb_fn absorb;
static uint32_t said; /* the last number that this rank has said */

/* All states before the round that begins are stored, because each round is stored by itself. */
static int absorb_and_say(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  if (task->round - 1 > said) {
    say(1, "committed %u\n", task->round - 1);
    said = task->round - 1;
  }
  return absorb(user, task, inbox, bytes, next);
}

static unsigned long long stored_rounds(ftsort *group);

static ftsort_status open_together(ftsort *group, const char *name, int *found)
{
  ftsort_status status;
  start_together(ftsort_rank(group), ftsort_ranks(group));
  status = ftsort_store_open(group, name, found);
  if (status == FTSORT_OK && *found && stored_rounds(group) > 0) {
    said = (uint32_t)stored_rounds(group);
    say(1, "found %u\n", said);
  }
  return status;
}

static ftsort_status run_and_say(ftsort *group, ftsort_rounds *rounds, const void *state, size_t bytes,
                                 ftsort_result **result)
{
  ftsort_status status;
  absorb = rounds->absorb;
  rounds->absorb = absorb_and_say;
  status = ftsort_rounds_run(group, rounds, state, bytes, result);
  if (status == FTSORT_OK) say(1, "committed %llu\n", stored_rounds(group));
  return status;
}

#define ftsort_store_open open_together
#define ftsort_rounds_run run_and_say
#include "../../c_examples/restart_rounds.c"
