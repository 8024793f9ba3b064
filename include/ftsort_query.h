/* ftsort_query.h: operations beyond the sort of one array.
 *
 *   ftsort_array cells[CELLS] = {{&record, particles, count}, ...};
 *   ftsort_result *results[CELLS];
 *   ftsort_run_many(group, cells, CELLS, results);                   // sorts each array by itself
 *
 * The conventions are those of ftsort.h.
 */
#ifndef FTSORT_QUERY_H
#define FTSORT_QUERY_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Many arrays ----------------------------------------------------------------------------------------- */

/** One array of ftsort_run_many, as the arguments of ftsort_run describe it. */
typedef struct ftsort_array {
  const ftsort_record *record; /**< The layout. Arrays may differ in key and order, but not in `record_bytes`. */
  const void *data;            /**< `count` records of this rank; NULL if `count` is 0. */
  size_t count;                /**< The number of records of this rank. */
} ftsort_array;

/**
 * Sorts several arrays, each by itself, with the messages and agreements of one sort. [C]
 *
 * As ftsort_run for each array, for example for each cell or field of a simulation, but many small arrays take much
 * less time. Each array is divided over all ranks (docs/sorting.md states how evenly), and has a result of its own,
 * to be recovered and released in any order. The algorithm is FTSORT_SAMPLESORT. A `reload` callback provides all
 * arrays of its rank, one after the other.
 *
 * \param arrays       `array_count` arrays, in the same order and of the same layouts on all ranks
 * \param array_count  the number of arrays, the same on all ranks
 * \param results      receives `array_count` results; release each with ftsort_result_free; all NULL after an error
 * \return as ftsort_run; FTSORT_ERR_DATA_LOST also if a rank fails before the others know its counts
 */
ftsort_status ftsort_run_many(ftsort *group, const ftsort_array *arrays, size_t array_count,
                              ftsort_result **results);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_QUERY_H */
