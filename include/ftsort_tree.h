/* ftsort_tree.h: collectives along trees that avoid faulty links (Leu and Kuo 1996).
 *
 *   ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT;
 *   options.operation = FTSORT_TREE_SUM;
 *   options.key = FTSORT_KEY_I64;
 *   ftsort_tree_merge(group, &options, counts, sizeof counts, &result);   // result on one rank, NULL on the others
 *
 * ftsort_tree_merge merges contributions, ftsort_gather_sorted brings the result of a sort to one rank in pieces,
 * and ftsort_tree_broadcast copies bytes of one rank to all. ftsort_tree_share divides data among the ranks that a
 * tree reaches, before a computation:
 *
 *   do {
 *     ftsort_tree_share(group, &options, rows, &first, &count);
 *     ...                                           // computes the products of rows first to first + count - 1
 *     status = ftsort_tree_merge(group, &options, products, bytes, &result);
 *   } while (status == FTSORT_ERR_DATA_LOST);       // a rank failed before its products had left it
 *
 * docs/tree.md explains the trees and the shares. The conventions are those of ftsort.h.
 */
#ifndef FTSORT_TREE_H
#define FTSORT_TREE_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The operation that merges two contributions in ftsort_tree_merge. */
typedef enum ftsort_tree_op {
  FTSORT_TREE_CONCATENATE = 0, /**< One after the other, in the order of nodes. */
  /** Merges two sorted lists of records of `record`. A list that is not sorted is an invalid argument. */
  FTSORT_TREE_SORTED = 1,
  /** Adds arrays of numbers of the type `key`, of the same length on all ranks, element by element. Integers wrap
   * around. */
  FTSORT_TREE_SUM = 2,
  FTSORT_TREE_MIN = 3,         /**< The smaller number of each element of such arrays. */
  FTSORT_TREE_MAX = 4,         /**< The greater number of each element. */
  FTSORT_TREE_AND = 5,         /**< For each element 1 if both are not 0, else 0. */
  FTSORT_TREE_OR = 6,          /**< For each element 1 if one of them is not 0, else 0. */
  FTSORT_TREE_CALL = 7,        /**< Calls `merge`. */
} ftsort_tree_op;

/** The way around a faulty link to the parent of a node (1996 paper, Section 3.2). */
typedef enum ftsort_tree_remedy {
  /** The node gives its data to one neighbour that can pass them on, if there is one, and else uses a detour. */
  FTSORT_TREE_DELEGATE = 0,
  FTSORT_TREE_REROUTE = 1, /**< Always a detour. */
  /** The strategy of the paper: the node divides its data among all neighbours that can pass them on. For sorted
   * lists and arrays of numbers without `ordered` in ftsort_tree_merge; otherwise as FTSORT_TREE_DELEGATE. */
  FTSORT_TREE_PARTITION = 2,
} ftsort_tree_remedy;

/** Merges two contributions, or merged contributions, into `merged` (see ftsort_buffer_resize). Must be pure: the
 * same bytes for the same bytes, on every rank. Called on any rank, by the thread that called ftsort, again for
 * the same contributions after failures, and never with an empty contribution. `low` and `high` are aligned to at
 * least 8 bytes. With `ordered` all of `low` is of smaller nodes than `high`; otherwise the operation must be
 * commutative and associative. Returns 0, or any other number to refuse, which ends the call with
 * FTSORT_ERR_CALLBACK. Must not throw, longjmp, or call ftsort or MPI, except the functions ftsort_buffer_. */
typedef int (*ftsort_tree_merge_fn)(void *user, const void *low, size_t low_bytes, const void *high,
                                    size_t high_bytes, ftsort_buffer *merged);

/** Options for tree collectives. Start from FTSORT_TREE_OPTIONS_INIT; zero selects the default of every member. The
 * same on all ranks, except `user`. Borrowed for the call, with all that it points to. Later versions append
 * members. */
typedef struct ftsort_tree_options {
  size_t struct_size;          /**< `sizeof(ftsort_tree_options)`. */
  /** Not 0: the tree leads to the node of rank `sink`. 0: FIND_TREE chooses a node with the fewest faulty links
   * (1996 paper, Section 3.1); without faulty links the node of the lowest survivor. */
  int32_t has_sink;
  /** A rank; if it has failed, the executor of its node takes its place. In ftsort_gather_sorted no spare without a
   * node. */
  int32_t sink;
  int32_t operation;           /**< One of `ftsort_tree_op`; ftsort_tree_merge only. */
  int32_t key;                 /**< One of `ftsort_key`, a number; for the operations on arrays of numbers. */
  /** Not 0: only contributions of adjacent nodes are merged, in their order; others stay apart on the way, and the
   * sink needs more memory. For a `merge` that depends on the order, and for sorted lists in which records with
   * equal keys must keep the order of ranks. Concatenation is always ordered. */
  int32_t ordered;
  int32_t reroute;             /**< One of `ftsort_tree_remedy`. */
  /** Not 0: each link is tested by three timed messages before the call, and counts as faulty in this call if all
   * of them are late (1996 paper, Figure 7): longer on the way than usual on the faster links of one of its two
   * ranks, and longer than this number of milliseconds, the second one than twice and the third one than four
   * times this number. If neither rank has a faster link, as in a group of two ranks, the limit is a hundred times
   * this number for all three. Detects slow links; a link that carries nothing cannot be told from a slow rank,
   * and the test waits. */
  uint32_t detect_ms;
  size_t link_count;           /**< The number of pairs at `links`. */
  /** The faulty links: pairs of ranks, two numbers each, that must not send to each other on the way along the
   * tree. The nodes of a failed rank move to their executor. NULL if `link_count` is 0. */
  const int32_t *links;
  const ftsort_record *record; /**< The records of sorted lists; FTSORT_TREE_SORTED only. */
  ftsort_tree_merge_fn merge;  /**< See `ftsort_tree_merge_fn`; FTSORT_TREE_CALL only. */
  void *user;                  /**< Passed to `merge` and never read. */
} ftsort_tree_options;

#define FTSORT_TREE_OPTIONS_INIT { sizeof(ftsort_tree_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/**
 * Returns the share of this rank if items are divided among the ranks that can contribute to a tree. [L]
 *
 * This is the uniform data distribution (UDD) of Leu and Kuo 1996, Sections 3.2 and 3.3, for ranks: each rank that
 * has not failed and that `options->links` do not separate from the sink of the tree gets a share. A failed rank, a
 * separated rank and a spare without a node get none. The shares cover all items, in the order of ranks, and their
 * sizes differ by at most 1.
 *
 * The shares follow from `options` and from the failed ranks that this rank knows. All survivors know the same
 * failed ranks when a collective call returns, such as ftsort_init, ftsort_fault_check or ftsort_tree_merge, also
 * after an error. If a rank fails before its share has left it, ftsort_tree_merge returns FTSORT_ERR_DATA_LOST:
 * call ftsort_tree_share again, which divides the items among the other ranks, and repeat. ftsort_tree_merge
 * returns FTSORT_ERR_ARGUMENT if the executor of a rank that fails during the call is separated, because it has
 * that rank's contribution: repeat then, too, if more ranks have failed (ftsort_is_failed) than before the call.
 *
 * \param options  borrowed for the call, the same on all ranks; NULL selects all defaults. `links` and the sink
 *                 have an effect; links are not tested (`detect_ms`)
 * \param total    the number of items
 * \param first    receives the first item of this rank
 * \param count    receives the number of its items; 0 if it has none
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a NULL `group`, `first` or `count`, or invalid `options` (then `first`
 *         and `count` receive 0); FTSORT_ERR_STATE while the group is busy
 */
ftsort_status ftsort_tree_share(const ftsort *group, const ftsort_tree_options *options, uint64_t total,
                                uint64_t *first, uint64_t *count);

/**
 * Merges a contribution of every rank along a tree, and leaves the result on one rank. [C]
 *
 * The tree avoids faulty links (Leu and Kuo 1996, Sections 3.1 and 3.2, FIND_TREE and FTTC). Contributions are
 * merged where they meet, so the result must fit into the memory of one rank. To bring the result of a sort to one
 * rank without that limit, use ftsort_gather_sorted.
 *
 * Tolerates failures at any moment: every contribution is first protected by the configured store (nothing is kept
 * with FTSORT_STORE_RELOAD and FTSORT_STORE_NONE). After a failure the survivors choose a tree again and start over
 * with the contributions of the failed ranks. A copy counts as soon as its holder has all of it. If a rank fails
 * before that, the call returns FTSORT_ERR_DATA_LOST, and a second call proceeds without that rank. A rank that was
 * known to have failed before the call contributes nothing. `options->links` concerns the tree only; agreements and
 * copies use any link. In fault schedules round 0 protects contributions, and round 1 carries them.
 *
 * Ranks that `options->links` separate from the sink are left out if they contribute 0 bytes, as ftsort_tree_share
 * distributes the data. Without `options->has_sink` the sink is in the largest connected part of the hypercube.
 * After a failure the executor has the links of more nodes: a separated rank may be connected then, and a
 * contribution may be separated that was not before.
 *
 * \param options  borrowed for the call; NULL selects all defaults, and concatenation
 * \param state    the contribution of this rank; copied; any alignment; NULL if `bytes` is 0
 * \param bytes    the size of `state`; a contribution of 0 bytes is not merged with anything
 * \param result   receives, on the rank that executes the sink of the tree (`ftsort_tree_info.executor`), a result
 *                 with one block of bytes; release it with ftsort_result_free. Receives NULL on all other ranks and
 *                 after an error
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `options` differs between ranks or if `options->links`
 *         separates a contribution of more than 0 bytes from the sink (the text names the separated ranks), and on
 *         the rank that meets arrays of different lengths; FTSORT_ERR_STATE also if links that `options->detect_ms`
 *         found separate one; FTSORT_ERR_CALLBACK; FTSORT_ERR_DATA_LOST; or another status of "Collective calls"
 */
ftsort_status ftsort_tree_merge(ftsort *group, const ftsort_tree_options *options, const void *state, size_t bytes,
                                ftsort_result **result);

/**
 * Copies bytes of one rank to all ranks, along a tree. [C]
 *
 * The tree avoids faulty links. Tolerates failures at any moment, as ftsort_tree_merge does; `root` may fail as
 * soon as a copy of its bytes is kept. In fault schedules round 0 protects the bytes, and round 1 carries them.
 * Every survivor receives the bytes, so that no rank can be left out as in ftsort_tree_merge.
 *
 * \param options  borrowed for the call; NULL selects all defaults. The sink and the operation have no effect, but
 *                 must be the same on all ranks
 * \param root     a surviving rank, the same on all ranks
 * \param buffer   on `root` the bytes to copy; on the other ranks it is written to and not read, and an error
 *                 leaves it unchanged; NULL if `bytes` is 0
 * \param bytes    the size of `buffer`, the same on all ranks
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `root` was known to have failed, if `options` or `bytes`
 *         differs between ranks, or if `options->links` separates a rank (the text names it); FTSORT_ERR_STATE also
 *         if links that `options->detect_ms` found separate a rank; FTSORT_ERR_DATA_LOST if `root` failed before
 *         its bytes were kept; or another status of "Collective calls"
 */
ftsort_status ftsort_tree_broadcast(ftsort *group, const ftsort_tree_options *options, int32_t root, void *buffer,
                                    size_t bytes);

/** Receives the next `count` records of a sorted result. Called on the rank that receives them, by the thread that
 * called ftsort. `records` is aligned as in a block, and valid during the callback. Returns 0, or any other number
 * to refuse, and then ftsort_gather_sorted returns FTSORT_ERR_CALLBACK. Must not throw, longjmp, or call ftsort
 * with this group. */
typedef int (*ftsort_consume_fn)(void *user, const void *records, size_t count);

/**
 * Hands the whole result of a sort to one rank, in order, in pieces of about 4 MiB. [C]
 *
 * The pieces travel along a tree that avoids faulty links. Unlike ftsort_tree_merge, which merges arbitrary
 * contributions and holds the merged whole in the memory of one rank, this function needs memory for a few pieces
 * on any rank, and takes the blocks of a result, which are already in order. Of a result with columns
 * (ftsort_query.h) it hands over the first one.
 *
 * Each record is handed over once, after all survivors have agreed that its piece arrived. After failures the call
 * recovers the result, as ftsort_result_recover does, and continues. If the receiving rank fails, the rank that
 * executes the sink then receives all records from the first one on. A rank that was excluded when the result was
 * made executes no sink, so that another rank receives the records in its place. In fault schedules every piece is
 * round 1.
 *
 * \param options  borrowed for the call; NULL selects all defaults. The sink of the tree receives the records
 *                 (`ftsort_tree_info.executor`), and is no spare without a node. The operation has no effect, but
 *                 must be the same on all ranks
 * \param result   the result of this rank of a sort of this group, of the same sort on all ranks; it receives
 *                 blocks that are rebuilt
 * \param consume  see `ftsort_consume_fn`; not NULL on any rank, because any rank may receive the records
 * \param user     passed to `consume` and never read
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `options` differs between ranks, if `options->links`
 *         separates a rank with records, if the sink is a spare without a node, or if the results are not of one
 *         sort; FTSORT_ERR_STATE also if links that `options->detect_ms` found separate a rank;
 *         FTSORT_ERR_DATA_LOST if the result cannot be recovered; FTSORT_ERR_CORRUPT also if blocks that were
 *         rebuilt do not fit the others, because `compare` or `reload` has returned something else since the sort;
 *         FTSORT_ERR_CALLBACK; or another status of "Collective calls". Blocks that were rebuilt stay in the
 *         result, also if links separate their ranks then
 */
ftsort_status ftsort_gather_sorted(ftsort *group, const ftsort_tree_options *options, ftsort_result *result,
                                   ftsort_consume_fn consume, void *user);

/** The tree of the last ftsort_tree_merge, ftsort_tree_broadcast or ftsort_gather_sorted that succeeded, the same
 * on all survivors. Later versions append members. */
typedef struct ftsort_tree_info {
  size_t struct_size;       /**< `sizeof(ftsort_tree_info)`, set by the caller. */
  int32_t sink;             /**< The node that the tree leads to; -1 if no such call has succeeded yet. */
  int32_t executor;         /**< The rank that executed that node, and received the result; -1 as above. */
  uint32_t dimension_count; /**< The number of dimensions of the hypercube. */
  /** The dimensions in the order in which data cross them on the way to the sink (1996 paper, Section 2.2);
   * `dimension_count` of them. */
  uint32_t dimensions[32];
  uint32_t faulty_links;    /**< The number of faulty links of the tree, all of which were avoided. */
  /** The number of messages that went to another neighbour, which passed them on with its own. */
  uint64_t helps;
  uint64_t detours;         /**< The number of messages that took a route over other nodes. */
} ftsort_tree_info;

#define FTSORT_TREE_INFO_INIT { sizeof(ftsort_tree_info), 0, 0, 0, { 0 }, 0, 0, 0 }

/**
 * Describes the tree of the last call that used one. [L]
 *
 * \param info   set `struct_size` before (FTSORT_TREE_INFO_INIT); receives that many bytes
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL or a `struct_size` that is too small; FTSORT_ERR_STATE while the
 *         group is busy
 */
ftsort_status ftsort_tree_get_info(const ftsort *group, ftsort_tree_info *info);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_TREE_H */
