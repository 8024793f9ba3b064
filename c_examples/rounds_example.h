/* The common part of the examples of ftsort_rounds_run: runs the rounds, and checks and prints the states of each
 * survivor. For inputs that any rank can generate or read again (rounds.begin_all). */
#ifndef ROUNDS_EXAMPLE_H
#define ROUNDS_EXAMPLE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_rounds.h"
#include "ftsort_store.h"
#include "leave.h"

static ftsort *group;

/* Runs the rounds, checks the states, and ends the process. Does not return. */
static void run_and_leave(ftsort_rounds *rounds, int (*is_right)(const ftsort_block *state))
{
  ftsort_result *result = NULL;
  ftsort_block state;
  size_t i, new_failures = 0;
  uint32_t right = 1;
  rounds->begin_all = 1;
  do { /* repeated if a rank fails after the last round, with its states */
    ftsort_result_free(result);
    if (ftsort_rounds_run(group, rounds, NULL, 0, &result) != FTSORT_OK ||
        ftsort_fault_check(group, &new_failures) != FTSORT_OK) {
      fprintf(stderr, "rank %d: %s\n", (int)ftsort_rank(group), ftsort_last_error(group));
      leave_with(group, 1);
    }
  } while (new_failures > 0);
  for (i = 0; ftsort_result_block(result, i, &state) == FTSORT_OK; i++) {
    int fine = is_right(&state);
    printf("node %d on rank %d: %s\n", (int)state.node, (int)ftsort_rank(group), fine ? "right" : "WRONG");
    right &= (uint32_t)fine;
  }
  ftsort_result_free(result);
  if (ftsort_agree(group, &right, NULL) != FTSORT_OK) right = 0; /* whether the states of all ranks are right */
  leave_with(group, right ? 0 : 1);
}

#endif
