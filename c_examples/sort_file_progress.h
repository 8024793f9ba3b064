/* The output of sort_file.c while it sorts: lines for a person, or events for scripts.
 *
 * The lines are never overwritten, as a progress bar would do: mpirun gives each rank a terminal of its own as its
 * stdout, so that a rank cannot know whether mpirun writes to a terminal or to a file. */
#ifndef SORT_FILE_PROGRESS_H
#define SORT_FILE_PROGRESS_H
#include <stdarg.h>
#include <stdio.h>

#include "ftsort.h"

enum style { LINES, EVENTS, QUIET };

struct progress {
  enum style style;
  int rank, ranks, failed;
  double bytes, start; /* of the whole file; seconds of MPI_Wtime */
};

/* Prints a line with the seconds since the start. */
static void say(const struct progress *progress, const char *format, ...)
{
  va_list values;
  char line[256];
  if (progress->style != LINES) return;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  printf("%8.2f s  %s\n", MPI_Wtime() - progress->start, line);
  fflush(stdout);
}

/* ftsort_protect has one round, and a sort has more. A sort after failures protects the input again. */
static int is_protection(const ftsort_event *event) { return event->rounds == 1; }

/* An event of the sort as a line for a person. */
static void say_event(const struct progress *progress, const ftsort_event *event)
{
  int rank = (int)event->rank, peer = (int)event->peer, alive = progress->ranks - progress->failed;
  unsigned round = event->round + 1, rounds = event->rounds;
  switch (event->kind) {
  case FTSORT_EVENT_ROUND:
    if (is_protection(event)) say(progress, "the input is protected, %d of %d ranks alive", alive, progress->ranks);
    else say(progress, "round %u of %u committed, %.1f MB, %d of %d ranks alive", round, rounds, progress->bytes / 1e6,
        alive, progress->ranks);
    break;
  case FTSORT_EVENT_FAILURE:
    say(progress, "rank %d has failed, %d of %d ranks alive", rank, alive, progress->ranks);
    break;
  case FTSORT_EVENT_EXECUTOR: say(progress, "rank %d now runs node %d", peer, rank); break;
  case FTSORT_EVENT_REPLAY: say(progress, "round %u of %u starts again", round, rounds); break;
  case FTSORT_EVENT_RENEWED: say(progress, "the blocks of failed ranks are recovered"); break;
  default: break;
  }
}

/* An event of the sort as a line for scripts. */
static void print_event(const ftsort_event *event)
{
  int rank = (int)event->rank, peer = (int)event->peer;
  if (event->kind == FTSORT_EVENT_ROUND && is_protection(event)) printf("protected\n");
  else if (event->kind == FTSORT_EVENT_ROUND) printf("round %u of %u\n", event->round + 1, event->rounds);
  if (event->kind == FTSORT_EVENT_FAILURE) printf("failed %d\n", rank);
  if (event->kind == FTSORT_EVENT_EXECUTOR) printf("executor %d is %d\n", rank, peer);
  if (event->kind == FTSORT_EVENT_REPLAY) printf("replay %u of %u\n", event->round + 1, event->rounds);
  if (event->kind == FTSORT_EVENT_RENEWED) printf("recovered\n");
  fflush(stdout);
}

/* Every rank prints the blocks that it has restored. The lowest survivor prints all other events. */
static void show_event(struct progress *progress, const ftsort_event *event)
{
  int node = (int)event->rank, holder = (int)event->peer;
  progress->failed += event->kind == FTSORT_EVENT_FAILURE;
  if (event->kind == FTSORT_EVENT_RESTORED) {
    if (holder < 0) say(progress, "rank %d has restored node %d", progress->rank, node);
    else say(progress, "rank %d has restored node %d from the replica on rank %d", progress->rank, node, holder);
    if (progress->style == EVENTS)
      printf("restored %d by %d from %s\n", node, progress->rank, holder < 0 ? "the store" : "a copy");
    fflush(stdout);
  } else if (event->lowest_survivor == progress->rank) {
    if (progress->style == LINES) say_event(progress, event);
    if (progress->style == EVENTS) print_event(event);
  }
}

#endif
