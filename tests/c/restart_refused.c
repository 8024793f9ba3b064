/* c_examples/restart.c in which the state of a rank is refused in the third round, as for lack of memory. */
#define _XOPEN_SOURCE 700
#include <stdint.h>

#include "ftsort_store.h"

static ftsort_status refuse_third(ftsort *group, int32_t node, const void *state, size_t bytes)
{
  const int refused = ftsort_rank(group) == 1 && *(const uint64_t *)state == 3;
  return ftsort_store_put(group, refused ? -1 : node, state, bytes);
}

#define ftsort_store_put refuse_third
#include "../../c_examples/restart.c"
