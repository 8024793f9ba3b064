/* ftsort_verify.h: data corruption: checks during a call, and the verification of results, also of arrays that
 * another program sorted.
 *
 *   config.checks = FTSORT_CHECK_DIGEST;                            // before ftsort_init
 *   ...
 *   ftsort_result_verify(group, sorted, data, count, &violations);  // 0: in order, and the same records
 *
 * The conventions are those of ftsort.h.
 */
#ifndef FTSORT_VERIFY_H
#define FTSORT_VERIFY_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Checks ---------------------------------------------------------------------------------------------- */

/** Checks against data corruption in memory, network and files: bits of `ftsort_config.checks`. A corruption that
 * cannot be repaired is FTSORT_ERR_CORRUPT on all ranks, or FTSORT_ERR_DATA_LOST if no copy is left.
 * docs/reliable.md has the proofs and the limits. */
typedef enum ftsort_check {
  /** Follows every block by a digest of its records from the input of the caller to the result. Misses a change
   * with a probability of at most n / 2^59 for n records. Corrupt blocks are restored from intact copies or by
   * `reload`. In ftsort_rounds_run it covers states between the callbacks. Messages of trees and of ftsort_top are
   * not covered. */
  FTSORT_CHECK_DIGEST = 1,
  /** Progress: at the end of a stage each half of the bitonic sequence is monotonic (McMillin and Ni 1989, Section
   * 3, Figure 4a). FTSORT_BITONIC only, and together with the next two: algorithm S_FT of that paper, with log2(N)
   * more rounds, and messages and copies of up to twice the records of all N nodes. */
  FTSORT_CHECK_PROGRESS = 2,
  /** Feasibility: a sequence is a permutation of the sequence that it was made of (Figure 4b). */
  FTSORT_CHECK_FEASIBILITY = 4,
  /** Consistency: reports about a node agree with earlier reports (Figure 4c, corrected in docs/reliable.md). */
  FTSORT_CHECK_CONSISTENCY = 8,
  /** ftsort_rounds_run only: calls every callback twice, the second time with its bytes at other addresses;
   * different bytes are FTSORT_ERR_CALLBACK. For tests. Does not see a dependence on the rank or the process. */
  FTSORT_CHECK_PURITY = 16,
} ftsort_check;

/** The check that detected data corruption: `ftsort_event.finding`. FTSORT_CHECK_DIGEST finds 1 to 4; the checks of
 * bitonic sort find 5 to 8 and accuse no rank. Later versions may add values. */
typedef enum ftsort_finding {
  FTSORT_FINDING_NONE = 0,        /**< The event is not FTSORT_EVENT_CORRUPT. */
  FTSORT_FINDING_MESSAGE = 1,     /**< A block arrived that differs from the block that its sender announced. */
  /** A block differs from the records that it was made of, or from its stored digest. */
  FTSORT_FINDING_MEMORY = 2,
  /** A block of the result is not in order, or does not begin where the block before it ends. */
  FTSORT_FINDING_ORDER = 3,
  FTSORT_FINDING_WHOLE = 4,       /**< The results of all ranks together differ from the inputs together. */
  FTSORT_FINDING_PROGRESS = 5,    /**< FTSORT_CHECK_PROGRESS: a sequence is not monotonic at the end of a stage. */
  /** FTSORT_CHECK_FEASIBILITY: a sequence is not a permutation of the sequence that it was made of. */
  FTSORT_FINDING_FEASIBILITY = 6,
  FTSORT_FINDING_CONSISTENCY = 7, /**< FTSORT_CHECK_CONSISTENCY: two reports about the same node differ. */
  FTSORT_FINDING_ABSENCE = 8,     /**< FTSORT_CHECK_CONSISTENCY: a message lacks the report about a node. */
} ftsort_finding;

/* ---- Verification ---------------------------------------------------------------------------------------- */

/**
 * Verifies that a result is in order and consists of the records that were sorted. [C]
 *
 * Compares every pair of neighbours, within a block and from block to block, and the result with the inputs as
 * multisets, by digests with a new key: a difference among n records is missed with a probability of at most n /
 * 2^59 (McMillin and Ni 1989, Theorem 1; docs/reliable.md). Records with equal keys may be in any order. If no rank
 * passes an `input`, only the order and the number of records are verified, of an array only the order. After
 * failures a survivor must also pass the inputs of the failed ranks. If a rank with a block has failed, its block
 * is missing, which is a violation: recover, and verify again.
 *
 * \param result      the result of this rank, of ftsort_sort, ftsort_run or ftsort_result_of_array; not changed.
 *                    The records of other inputs, such as all of those of which ftsort_top returned a part, count
 *                    as missing
 * \param input       the records that this rank passed to the sort, in any order; NULL if `count` is 0
 * \param count       the number of records at `input`
 * \param violations  receives the number of places where the result is wrong, the same on all survivors; 0 if it is
 *                    right
 * \return FTSORT_OK, for a right result and for a wrong one; FTSORT_ERR_ARGUMENT also for a result of rounds or of
 *         a tree, for positions and groups (ftsort_argsort, ftsort_positions, ftsort_unique, ftsort_group_by), and
 *         for results of different sorts; or another status of "Collective calls"
 */
ftsort_status ftsort_result_verify(ftsort *group, const ftsort_result *result, const void *input, size_t count,
                                   uint64_t *violations);

/**
 * Wraps a part of an array that another program sorted, to be verified with ftsort_result_verify. [L]
 *
 * Copies nothing: `data` must stay valid and unchanged until the result is released. The order of the parts is the
 * order of ranks.
 *
 * \param group   the group of the ranks that hold the parts; not changed
 * \param record  the layout of the records; borrowed for the call, except `compare` and `user`, which are used by
 *                ftsort_result_verify
 * \param data    the part of this rank, aligned as an array of such records is; NULL if `count` is 0
 * \param count   the number of records at `data`
 * \param result  receives a result with one block, this part; release it with ftsort_result_free
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE
 */
ftsort_status ftsort_result_of_array(const ftsort *group, const ftsort_record *record, const void *data,
                                     size_t count, ftsort_result **result);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_VERIFY_H */
