/* ftsort_store.h: loops of the caller that survive failures: stored states, inputs and algorithms that change from
 * one sort to the next, and the virtual hypercube.
 *
 *   for (d = dimensions; d > 0; d -= committed) {     // leave it after an error of a collective call
 *     ftsort_fault_check(group, NULL);                // moves the states of failed ranks to the executors
 *     done = 1;
 *     ...                                             // for each node that this rank executes: one round
 *     done &= ftsort_store_put(group, node, state, bytes) == FTSORT_OK;
 *     ftsort_store_commit(group, done, &committed);   // 0: repeat the round
 *   }
 *
 * With a name for the states (ftsort_store_open) the loop also survives the end of the whole job, and so does the
 * result of a sort by ftsort_run_stored.
 *
 * The interface of the papers: checkpoint, readCheckpoint, FaultDetection and FaultInject. An algorithm that fits
 * ftsort_rounds.h needs none of it. The conventions are those of ftsort.h.
 */
#ifndef FTSORT_STORE_H
#define FTSORT_STORE_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- States ---------------------------------------------------------------------------------------------- */

/**
 * Gives the stored states a name in `store_directory`, under which another job finds them. [C]
 *
 * Call it before the first ftsort_store_put. States that an earlier job has committed under the name and not
 * discarded become the committed states of this group: ftsort_store_get returns them, and the loop continues with
 * the next round. So a program can be started again after all its processes have ended (a time limit, a power
 * failure, SIGKILL), on a number of ranks that has as many nodes: 5 to 8 ranks continue the states of 5 to 8 ranks.
 *
 * From now on each ftsort_store_commit takes a second agreement. One that returns 1 is final for later jobs too;
 * `store_sync` is necessary for that after a power failure. The states stay in the directory until
 * ftsort_store_clear, also when the group is released. One job at a time may use a name: after another job has
 * opened it, a commit returns FTSORT_ERR_STORE.
 *
 * \param name   1 to 64 letters, digits, and characters of "-_."; the same on all ranks; not kept
 * \param found  receives 1 if there are states of an earlier job, or 0; the same on all survivors; 0 after an error
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT also without FTSORT_STORE_DIRECTORY, and for states of another number of
 *         nodes; FTSORT_ERR_STATE also if the group has stored states or a name for them already; FTSORT_ERR_STORE
 *         if files are damaged, or cannot be read or written (the states of the earlier job stay as they are); or
 *         another status of "Collective calls". After an error the states have no name
 */
ftsort_status ftsort_store_open(ftsort *group, const char *name, int *found);

/**
 * Stages the state of a node for the next ftsort_store_commit: checkpoint of the papers. [L]
 *
 * States are bytes of any size, which may differ between nodes and rounds. A staged state takes effect when all
 * survivors have agreed on it. ftsort_fault_check, ftsort_store_clear, ftsort_run_stored, ftsort_rounds_run with
 * `store_every`, and the recovery of a result of these two discard it. States are independent of the data of
 * ftsort_run.
 *
 * \param node   a node that this rank executes: ftsort_executor(group, node) == ftsort_rank(group)
 * \param state  the state; copied; any alignment; NULL if `bytes` is 0
 * \param bytes  the size of `state`
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a node that another rank executes; FTSORT_ERR_MEMORY;
 *         FTSORT_ERR_STATE
 */
ftsort_status ftsort_store_put(ftsort *group, int32_t node, const void *state, size_t bytes);

/**
 * Returns the committed state of a node: readCheckpoint of the papers. [L]
 *
 * After a failure the states of the nodes that this rank executes from then on are present as soon as
 * ftsort_fault_check or ftsort_store_commit has returned.
 *
 * \param node   a node that this rank executes: ftsort_executor(group, node) == ftsort_rank(group)
 * \param state  receives the address of the bytes, aligned to 64; valid until the next ftsort_fault_check,
 *               ftsort_store_commit, ftsort_store_clear, ftsort_run_stored, ftsort_rounds_run with `store_every`,
 *               or ftsort_result_recover of a result of these two, or until the group is released. NULL if no state
 *               of this node was committed, if it is lost, and after an error
 * \param bytes  receives the size, 0 without a state; may be NULL
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a node that another rank executes; FTSORT_ERR_STATE
 */
ftsort_status ftsort_store_get(ftsort *group, int32_t node, const void **state, size_t *bytes);

/**
 * Commits a round of a loop of the caller. [C]
 *
 * If all survivors are done and no rank was found failed since the round began (with the last ftsort_fault_check or
 * ftsort_store_commit), the staged states become the committed states, all at once; nodes without a staged state
 * keep theirs. Otherwise the staged states are discarded, the states of failed ranks move to the executors of their
 * nodes, and the caller repeats the round: "if F = F' then d = d - 1" of the papers. In both cases the next round
 * begins.
 *
 * \param done       not 0 if this rank did its part of the round; 0 on any rank prevents the commit
 * \param committed  receives 1 or 0, the same on all survivors
 * \return FTSORT_OK, committed or not; FTSORT_ERR_MEMORY or FTSORT_ERR_STORE if a rank could not keep its states or
 *         their name, and the round is not committed; FTSORT_ERR_DATA_LOST if states of the ranks that
 *         ftsort_lost_ranks names cannot be recovered (not committed either; all other states are in place); or
 *         another status of "Collective calls". After FTSORT_ERR_ARGUMENT and FTSORT_ERR_PEER_ARGUMENT the staged
 *         states stay, and the call can be repeated. If the states have a name and a rank fails while the commit
 *         ends, `committed` is 1 beside FTSORT_ERR_MEMORY, _STORE or _DATA_LOST if the states of that rank cannot
 *         be moved or recovered; ftsort_fault_check tries to move them again
 */
ftsort_status ftsort_store_commit(ftsort *group, int done, int *committed);

/**
 * Discards all stored states and removes their files. [C]
 *
 * For the end of a loop whose group is used further or released with ftsort_free; ftsort_leave does it too, unless
 * the states have a name (ftsort_store_open). The next job that opens the name finds nothing.
 *
 * \return FTSORT_OK; FTSORT_ERR_STORE if a file of the name cannot be written or removed; or another status of
 *         "Collective calls"
 */
ftsort_status ftsort_store_clear(ftsort *group);

/* ---- Sorts in loops -------------------------------------------------------------------------------------- */

/**
 * Replaces the records of this rank in a protected input. [C]
 *
 * All survivors pass their new records, in the layout of ftsort_protect; the counts may change. The new records are
 * protected beside the old ones, and then all ranks go over to the new ones or none: a failure during the call
 * leaves either the old or the new records on all ranks. Records of ranks whose failure a call before this one has
 * found stay in the input. During the call the input takes twice its memory. Results of earlier sorts stay valid.
 * With FTSORT_STORE_PARITY the inputs of ranks that have failed are brought to their executors first.
 *
 * \param input  a protected input of this group, the same on all ranks; not in use by another thread
 * \param data   `count` records of this rank, of any alignment; copied; NULL if `count` is 0
 * \param count  the number of records of this rank; may differ between ranks
 * \return FTSORT_OK; FTSORT_ERR_DATA_LOST if a rank failed before its new records had left it (ftsort_lost_ranks
 *         names it; its old records stay in the input, and the next call succeeds), or if old records of failed
 *         ranks cannot be recovered (these leave the input); FTSORT_ERR_CALLBACK; FTSORT_ERR_CORRUPT;
 *         FTSORT_ERR_ARGUMENT on all ranks for different inputs; or another status of "Collective calls". After an
 *         error the input has all other old records on all ranks
 */
ftsort_status ftsort_input_update(ftsort *group, ftsort_input *input, const void *data, size_t count);

/**
 * Selects the algorithm of the sorts that follow. [C]
 *
 * In place of `config.algorithm` and `config.pivot`, until the next call of this function; for ftsort_run,
 * ftsort_run_protected and ftsort_sort (if `group` is that of its communicator). So a protected input can be sorted
 * by one algorithm after the other. Results of earlier sorts are recovered by the algorithm that made them.
 *
 * \param algorithm  one of `ftsort_algorithm`, the same on all ranks; FTSORT_BITONIC if `config.checks` has the
 *                   checks of 1989
 * \param pivot      one of `ftsort_pivot`, the same on all ranks
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if the arguments differ between ranks; or another status of
 *         "Collective calls". After an error the algorithm is the same as before
 */
ftsort_status ftsort_set_algorithm(ftsort *group, int32_t algorithm, int32_t pivot);

/**
 * As ftsort_run, and stores the result under the name of ftsort_store_open, so that it survives the end of the job.
 * [C]
 *
 * If the name has the result of a sort of the same records, the function returns it at once, without sorting. So a
 * program that is started again after all its processes have ended calls the same function with the same records,
 * and gets the result of the job before, if that had stored it. The records may be divided among the ranks in
 * another way, also among fewer ranks, which pass all of them; the blocks, and the order of equal keys, are those
 * of the job that sorted. The records are compared by a digest of all of them. Those of a rank that has failed
 * cannot be compared: then the input of each other rank must be the same as in the job that sorted, which must have
 * had an input of a rank that fails in the call and is no idle spare. Otherwise the function returns
 * FTSORT_ERR_DATA_LOST, or FTSORT_ERR_ARGUMENT if the failed rank had failed before the call.
 *
 * The blocks are the stored states of their nodes, as of ftsort_store_commit: ftsort_result_recover takes them from
 * there for as long as they are stored, ftsort_store_clear discards them, and a group stores one result at a time.
 *
 * \param record  as for ftsort_run; with `compare`, `type_id` must be a number for this order
 * \param data    as for ftsort_run
 * \param count   as for ftsort_run
 * \param result  as for ftsort_run
 * \return as ftsort_run; FTSORT_ERR_STATE also if the states have no name; FTSORT_ERR_ARGUMENT also if the stored
 *         states are not the result of a sort of these records, or `record` or `config.dense` was another one: the
 *         text says how to discard them; FTSORT_ERR_STORE if files cannot be read or written: then another job may
 *         find the states before this call or the new result. After other errors a result that was stored before
 *         stays, unless blocks of it are lost
 */
ftsort_status ftsort_run_stored(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                                ftsort_result **result);

/* ---- The virtual hypercube ------------------------------------------------------------------------------- */

/**
 * Returns d, the number of dimensions of the virtual hypercube; 0 for NULL. [L]
 *
 * The hypercube has 2^d nodes, the smallest power of two that is not less than the number of ranks.
 */
uint32_t ftsort_dimension(const ftsort *group);

/**
 * Returns 1 if `rank` is a live spare (`ftsort_config.spares`) that has not taken over from a failed rank, else 0.
 * [L]
 *
 * Such a rank has no node and must pass no input. 0 for NULL and while the group is busy.
 */
int ftsort_is_spare(const ftsort *group, int32_t rank);

/**
 * Returns the partner of `node` in dimension `s`: the first fault-free node of c(node,s). With spares it may be the
 * node of a spare that took over, or node xor 2^s. [L]
 *
 * Its executor (ftsort_executor) executes node xor 2^s too; it is the rank with that number, unless a spare took
 * over from it. If no node of the cluster is fault-free, the executor of node xor 2^s may be another rank than that
 * of `node`.
 *
 * \param node   a node
 * \param s      a dimension, from 0 to ftsort_dimension(group) - 1
 * \return the node; -1 if no node of the cluster is fault-free, for a node or a dimension that does not exist, for
 *         NULL, and while the group is busy
 */
int32_t ftsort_partner(const ftsort *group, int32_t node, uint32_t s);

/**
 * Lists c(node,s): the nodes of cluster `s` of `node`, in the order in which `node` prefers them. [L]
 *
 * Table 1 of the 2024 paper, which counts s from 1. Depends on no group.
 *
 * \param node      a node, 0 or more
 * \param s         a dimension, from 0 to 30
 * \param nodes     receives the first `capacity` nodes; may be NULL if `capacity` is 0
 * \param capacity  the number of elements at `nodes`
 * \return the number of nodes of the cluster, 2^s; 0 for a negative node or an `s` above 30
 */
size_t ftsort_cluster(int32_t node, uint32_t s, int32_t *nodes, size_t capacity);

/* ---- Fault injection ------------------------------------------------------------------------------------- */

/**
 * Kills this process with SIGKILL if the fault schedule names this rank and `round`. [L]
 *
 * FaultInject of the papers, for a loop of the caller; sorts follow the schedule by themselves. See
 * docs/fault-injection.md.
 *
 * \param round  the round that the loop begins; random schedules draw from the rounds 0 to log2(N) + 1
 * \return FTSORT_OK if this rank goes on; FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE
 */
ftsort_status ftsort_inject(ftsort *group, uint32_t round);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_STORE_H */
