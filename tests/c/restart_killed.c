/* c_examples/restart.c with ranks that begin at the same announced instant, for a script that kills them. Each rank says
 * the number of rounds in the states that it finds ("found N") and after each commit ("committed N"). */
#define _XOPEN_SOURCE 700
#include "outside.h"
#include "ftsort_store.h"

/* The first number in the state of a node that this rank executes. */
static void say_rounds(ftsort *group, const char *word)
{
  int node = 0;
  const void *state;
  while (ftsort_executor(group, node) != ftsort_rank(group)) node++;
  if (ftsort_store_get(group, node, &state, NULL) != FTSORT_OK || state == NULL) abort();
  say(1, "%s %llu\n", word, (unsigned long long)*(const uint64_t *)state);
}

static ftsort_status open_together(ftsort *group, const char *name, int *found)
{
  ftsort_status status;
  start_together(ftsort_rank(group), ftsort_ranks(group));
  status = ftsort_store_open(group, name, found);
  if (*found) say_rounds(group, "found");
  return status;
}

static ftsort_status commit_and_say(ftsort *group, int done, int *committed)
{
  ftsort_status status = ftsort_store_commit(group, done, committed);
  if (*committed) say_rounds(group, "committed");
  return status;
}

#define ftsort_store_open open_together
#define ftsort_store_commit commit_and_say
#include "../../c_examples/restart.c"
