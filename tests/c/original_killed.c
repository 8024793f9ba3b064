/* c_examples/original/hyperquicksort.c with ranks that kill themselves between two sorts.
 *
 * KILLS names the instants, separated by spaces: RANK@saved.N is after the rank has written the lists of the Nth sort,
 * counted from 1, and RANK@sort.N is before it passes its input to the Nth sort. */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort.h"

static void fail_if_planned(const char *moment, int number)
{
  const char *plan = getenv("KILLS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  char word[64], *found;
  snprintf(word, sizeof word, "%s@%s.%d", rank ? rank : "", moment, number);
  for (; plan && (found = strstr(plan, word)) != NULL; plan = found + 1) {
    const char end = found[strlen(word)];
    if ((found == plan || found[-1] == ' ') && (end == '\0' || end == ' ')) raise(SIGKILL);
  }
}

static ftsort_status killed_run(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                                ftsort_result **result)
{
  static int sorts;
  fail_if_planned("sort", ++sorts);
  return ftsort_run(group, record, data, count, result);
}

static ftsort_status killed_agree(ftsort *group, uint32_t *flags, size_t *new_failures)
{
  static int agreements; /* one after each sort */
  fail_if_planned("saved", ++agreements);
  return ftsort_agree(group, flags, new_failures);
}

#define ftsort_run killed_run
#define ftsort_agree killed_agree
#include "../../c_examples/original/hyperquicksort.c"
