/* ftsort_query.h: operations beyond the sort of one array: many arrays, keys and values in arrays of their own, the
 * order of records, records at given positions, and groups of equal keys.
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

/* ---- Keys and values, and the order of records ------------------------------------------------------------ */

/**
 * Sorts keys, and moves the value beside each key along. [C]
 *
 * As ftsort_run for the keys. Column 0 of the result has the keys, column 1 the values (ftsort_result_column). A
 * `reload` callback provides the keys of its rank, followed by the values. The call takes the memory of a further
 * copy of the keys and values.
 *
 * \param record       the layout of the keys, the same on all ranks; as for ftsort_run
 * \param keys         `count` keys of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param values       `count` values of this rank, of any alignment; NULL if `count` or `value_bytes` is 0; not
 *                     changed
 * \param value_bytes  the size of a value in bytes, the same on all ranks
 * \param count        the number of keys and of values of this rank; may differ between ranks
 * \param result       receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an
 *                     error
 * \return as ftsort_run
 */
ftsort_status ftsort_sort_by_key(ftsort *group, const ftsort_record *record, const void *keys, const void *values,
                                 size_t value_bytes, size_t count, ftsort_result **result);

/**
 * Sorts the positions of records by the records. [C]
 *
 * The result has, in sorted order, the position of each record in the input of all ranks, rank by rank: column 0,
 * of `uint64_t`. Records with equal keys keep their order. Otherwise as ftsort_run. Only keys are moved, not whole
 * records.
 *
 * \param record  the layout of the records, the same on all ranks; as for ftsort_run
 * \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count   the number of records of this rank; may differ between ranks
 * \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_run; FTSORT_ERR_DATA_LOST also if a rank fails before the others know how many records it has;
 *         FTSORT_ERR_ARGUMENT on all ranks also with FTSORT_BITONIC_MERGE, which does not keep the order of equal
 *         keys
 */
ftsort_status ftsort_argsort(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                             ftsort_result **result);

/**
 * Computes the position of each record in the sorted order. [C]
 *
 * The block of node v has the positions of the records that rank v passed, in their order: column 0, of `uint64_t`.
 * A survivor also receives the blocks of the failed ranks that it stands in for. Records with equal keys have
 * ascending positions in the order of ranks and positions. `offset` of a block is the number of records of lower
 * ranks.
 *
 * \param record  the layout of the records, the same on all ranks; as for ftsort_run
 * \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count   the number of records of this rank; may differ between ranks
 * \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_argsort
 */
ftsort_status ftsort_positions(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                               ftsort_result **result);

/* ---- Selection -------------------------------------------------------------------------------------------- */

/**
 * Finds the records at given positions of the sorted order. [C]
 *
 * Position 0 is that of the first record; records with equal keys have the order of ranks and positions. The inputs
 * are protected as by ftsort_protect, and are searched without a sort: a few passes over the records, and samples
 * of about 2^14 records. All survivors receive the same records, also if ranks fail.
 *
 * \param record          the layout of the records, the same on all ranks; as for ftsort_run
 * \param data            `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count           the number of records of this rank; may differ between ranks
 * \param positions       `position_count` positions in any order, the same on all ranks; NULL if there are none
 * \param position_count  the number of positions
 * \param records         receives `position_count` records, in the order of `positions`; unchanged after an error
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks for a position that no record has, or if `positions` differ
 *         between ranks; another status of ftsort_protect
 */
ftsort_status ftsort_select(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                            const uint64_t *positions, size_t position_count, void *records);

/**
 * Finds the records of quantiles. [C]
 *
 * As ftsort_select at the position max(0, ceil(f n) - 1) for a fraction f and n records on all ranks: the first
 * record such that at least the fraction f of all records is not behind it (NumPy's `inverted_cdf`). No numbers are
 * interpolated. A fraction of 0.5 is the lower median.
 *
 * \param record          the layout of the records, the same on all ranks; as for ftsort_run
 * \param data            `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count           the number of records of this rank; may differ between ranks
 * \param fractions       `fraction_count` numbers from 0 to 1, the same on all ranks; NULL if there are none
 * \param fraction_count  the number of fractions
 * \param records         receives `fraction_count` records, in the order of `fractions`; unchanged after an error
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a number outside of 0 to 1, and on all ranks if no rank has a
 *         record, or if `fractions` differ between ranks; another status of ftsort_protect
 */
ftsort_status ftsort_quantiles(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                               const double *fractions, size_t fraction_count, void *records);

/**
 * Sorts the first records of the sorted order of all ranks. [C]
 *
 * As ftsort_run, but the result has only the first `top` records, or all if there are fewer: the `top` smallest, or
 * for `record->descending` the greatest. The other records are not sorted; they are searched as by ftsort_select.
 *
 * \param record  the layout of the records, the same on all ranks; as for ftsort_run
 * \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count   the number of records of this rank; may differ between ranks
 * \param top     the number of records of the result, the same on all ranks
 * \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also if `top` differs between ranks, and with
 *         FTSORT_BITONIC_MERGE, which sorts whole bitonic sequences
 */
ftsort_status ftsort_top(ftsort *group, const ftsort_record *record, const void *data, size_t count, uint64_t top,
                         ftsort_result **result);

/* ---- Groups of equal keys --------------------------------------------------------------------------------- */

/**
 * Finds the distinct keys of all ranks, in order, and the number of records of each. [C]
 *
 * Column 0 of the result has the first record of each key, in the order of ranks and positions; column 1 the number
 * of records with this key, of `uint64_t`. ftsort_result_total returns the number of distinct keys. Otherwise as
 * ftsort_run.
 *
 * \param record  the layout of the records, the same on all ranks; as for ftsort_run
 * \param data    as for ftsort_run
 * \param count   the number of records of this rank; may differ between ranks
 * \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also with FTSORT_BITONIC_MERGE, which does not keep the
 *         order of equal keys
 */
ftsort_status ftsort_unique(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                            ftsort_result **result);

/** The number that an aggregate computes for each key. */
typedef enum ftsort_aggregation {
  FTSORT_COUNT = 1,    /**< The number of records: `uint64_t`. */
  /** The sum: `int64_t` for signed integers and `uint64_t` for unsigned ones, both modulo 2^64; `double` for
   * floating-point numbers, added in sorted order within a node, so that its last digits depend on the nodes'
   * parts. */
  FTSORT_SUM = 2,
  FTSORT_LEAST = 3,    /**< The first number in the order of its kind (`ftsort_key`), of this kind. */
  FTSORT_GREATEST = 4, /**< The last number in the order of its kind, of this kind. */
} ftsort_aggregation;

/** An aggregate of the records with one key, for ftsort_group_by. */
typedef struct ftsort_aggregate {
  int32_t aggregation; /**< One of `ftsort_aggregation`. */
  int32_t kind;        /**< The kind of number: FTSORT_KEY_I8 to FTSORT_KEY_F64; ignored by FTSORT_COUNT. */
  /** The position of the number in a record in bytes, of any alignment; ignored by FTSORT_COUNT. */
  size_t offset;
} ftsort_aggregate;

/**
 * Combines the records with equal keys. [C]
 *
 * As ftsort_unique, but column 1 + i of the result has aggregate i of all records with the key.
 *
 * \param record           the layout of the records, the same on all ranks; as for ftsort_run
 * \param aggregates       `aggregate_count` aggregates, the same on all ranks; NULL if `aggregate_count` is 0
 * \param aggregate_count  the number of aggregates, at most 1024
 * \param data             as for ftsort_run
 * \param count            the number of records of this rank; may differ between ranks
 * \param result           receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also if `aggregates` differ between ranks, and with
 *         FTSORT_BITONIC_MERGE
 */
ftsort_status ftsort_group_by(ftsort *group, const ftsort_record *record, const ftsort_aggregate *aggregates,
                              size_t aggregate_count, const void *data, size_t count, ftsort_result **result);

/* ---- Columns of results ----------------------------------------------------------------------------------- */

/**
 * Returns the number of columns of a result: 1 but for ftsort_sort_by_key, ftsort_unique and ftsort_group_by; 0 for
 * NULL. [L]
 */
size_t ftsort_result_columns(const ftsort_result *result);

/**
 * Describes a column of block `index` of a result. [L]
 *
 * A column has as many elements as the block (ftsort_block.count); column 0 is ftsort_block.data.
 *
 * \param data           receives the address of the column, aligned to 64 bytes if it is not column 0 of a sort; it
 *                       lives as long as the result
 * \param element_bytes  receives the size of an element in bytes; may be NULL
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL, a large `index`, or a large `column`
 */
ftsort_status ftsort_result_column(const ftsort_result *result, size_t index, size_t column, const void **data,
                                   size_t *element_bytes);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_QUERY_H */
