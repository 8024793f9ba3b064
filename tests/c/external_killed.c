/* c_examples/external.c with ranks that begin the sort at the same announced instant, for scripts that kill them. */
#define _XOPEN_SOURCE 700
#include "outside.h"
#include "ftsort.h"
#include "ftsort_external.h"

static ftsort_status sort_together(ftsort *group, const ftsort_record *record, const ftsort_external *files,
                                   ftsort_external_stats *stats)
{
  start_together(ftsort_rank(group), ftsort_ranks(group));
  return ftsort_external_sort(group, record, files, stats);
}

#define ftsort_external_sort sort_together
#include "../../c_examples/external.c"
