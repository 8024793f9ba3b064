/* ftsort_rounds.h: algorithms of the caller on the virtual hypercube, which tolerate failures.
 *
 *   ftsort_rounds sum = FTSORT_ROUNDS_INIT;
 *   sum.absorb = add;                                                  // adds the message to the state
 *   ftsort_rounds_run(group, &sum, &mine, sizeof mine, &result);       // afterwards each state is the sum
 *
 * An algorithm consists of pure callbacks; ftsort moves the messages, keeps the states, and replays rounds after
 * failures. ftsort_rounds_simulate tests an algorithm under thousands of failures in one process. docs/rounds.md
 * explains both. The conventions are those of ftsort.h.
 */
#ifndef FTSORT_ROUNDS_H
#define FTSORT_ROUNDS_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In ftsort_round.dimension and ftsort_task.dimension: a round without an exchange. */
#define FTSORT_NO_EXCHANGE UINT32_MAX

/* In ftsort_round.share: all nodes share a value. */
#define FTSORT_SHARE_ALL UINT32_MAX

/* ---- Callbacks ------------------------------------------------------------------------------------------- */

/** The part of one node in a round, as the callbacks see it. Valid during the callback, with all that it points to,
 * which must not be written to. */
typedef struct ftsort_task {
  size_t struct_size;  /**< `sizeof(ftsort_task)` of the library; later versions append members. */
  int32_t node;        /**< The node; for `decide` the root of the subcube. */
  int32_t partner;     /**< `node` xor 2^`dimension`; -1 in a round without an exchange. */
  int32_t is_upper;    /**< Not 0: `node` is greater than `partner`. */
  /** Not 0: `node` is the root of the subcube that shares a value: its fault-free node with the smallest number
   * (2024 paper, Section 4.1). For `propose` and `decide`. */
  int32_t is_root;
  uint32_t nodes;      /**< The number of nodes of the hypercube. */
  uint32_t round;      /**< The round, from 1, as in events and fault schedules. */
  uint32_t rounds;     /**< The number of rounds. */
  uint32_t dimension;  /**< The dimension of the round, from 0, or FTSORT_NO_EXCHANGE. */
  /** The state of the node before the round; empty for `decide`. Aligned to 64 bytes; not NULL, even if empty. */
  const void *state;
  size_t state_bytes;  /**< The size of `state`. */
  /** The value that the subcube of the node shared last, in this round or before; for `propose` and `decide` before
   * this round, and for `decide` that of the first node of the subcube. Aligned as `state`. */
  const void *shared;
  size_t shared_bytes; /**< The size of `shared`; 0 before any value was shared. */
} ftsort_task;

/** The proposal of one node for the value that its subcube shares. Valid during the callback. */
typedef struct ftsort_proposal {
  int32_t node;     /**< The node. */
  /** Not 0: the home rank of the node has failed and no spare took over, or is a spare, or does not exist, or a
   * monitor excludes it; the proposal is of the executor. */
  int32_t is_failed;
  const void *data; /**< The bytes, aligned to 64; not NULL, even if empty. */
  size_t bytes;     /**< The number of bytes. */
} ftsort_proposal;

/** Creates the initial state of a node if its home rank provides none: if the number of ranks is not a power of
 * two, or if the rank had failed before the call; with `begin_all` the initial state of every node.
 *
 * This callback and the next four must be pure: the same bytes for the same arguments, on every rank, at any time,
 * any number of times; no memory of earlier calls, no clock, no random numbers, no communication. They are called
 * for any node, on any rank, by the thread that called ftsort. They return 0, or any other number to refuse, which
 * ends the run with FTSORT_ERR_CALLBACK on all ranks. They must not throw, longjmp, or call ftsort or MPI, except
 * the functions ftsort_buffer_. */
typedef int (*ftsort_begin_fn)(void *user, int32_t node, ftsort_buffer *state);

/** Creates the proposal of a node for the value that its subcube shares. Without `decide` only roots are asked. */
typedef int (*ftsort_propose_fn)(void *user, const ftsort_task *task, ftsort_buffer *proposal);

/** Combines the proposals of all nodes of a subcube, in ascending order of node, into the shared value. */
typedef int (*ftsort_decide_fn)(void *user, const ftsort_task *task, const ftsort_proposal *proposals, size_t count,
                                ftsort_buffer *shared);

/** Creates the message of a node to its partner. */
typedef int (*ftsort_emit_fn)(void *user, const ftsort_task *task, ftsort_buffer *outbox);

/** Creates the state of a node after the round, in `next`, from its state before and the message of its partner:
 * `bytes` bytes at `inbox`, aligned to 64, not NULL; empty in a round without an exchange. A `next` that is not
 * filled is an empty state. */
typedef int (*ftsort_absorb_fn)(void *user, const ftsort_task *task, const void *inbox, size_t bytes,
                                ftsort_buffer *next);

/**
 * In an `emit` callback: sends a part of the state of the node without copying it. [L]
 *
 * \param outbox  the buffer that the callback was given; its contents are discarded
 * \param offset  the position of the part in the state, in bytes
 * \param bytes   the size of the part
 * \return 0; 1 for NULL, for a part that exceeds the state, and in other callbacks. A callback can return this
 *         number
 */
int ftsort_buffer_pass(ftsort_buffer *outbox, size_t offset, size_t bytes);

/**
 * In an `absorb` callback: makes the received message the next state, to be changed in place. [L]
 *
 * Saves a copy, and the memory of a message, if the message is not used elsewhere. Another call returns the message
 * again, with the bytes that were appended.
 *
 * \param next   the buffer that the callback was given; its other contents are discarded
 * \param bytes  receives the size of the message; may be NULL
 * \return the address of the message, aligned to 64 bytes, valid as for ftsort_buffer_resize; the bytes at `inbox`
 *         may change with it. NULL for NULL, if memory is exhausted, in other callbacks, and if
 *         ftsort_buffer_resize has replaced the message
 */
void *ftsort_buffer_reuse(ftsort_buffer *next, size_t *bytes);

/* ---- Algorithms ------------------------------------------------------------------------------------------ */

/** One round of an algorithm. */
typedef struct ftsort_round {
  /** Every node exchanges with node xor 2^dimension. FTSORT_NO_EXCHANGE: no node sends, and only `absorb` is
   * called. */
  uint32_t dimension;
  /** Nodes that differ only in the lowest `share` bits share a value before they act; more than `dimension` if they
   * exchange. FTSORT_SHARE_ALL: all nodes. 0: the last shared value stays in force. */
  uint32_t share;
} ftsort_round;

/** An algorithm on the virtual hypercube. Start from FTSORT_ROUNDS_INIT; zero selects the default of every member.
 * The same on all ranks, except `user`. Borrowed for the call, with all that it points to. Later versions append
 * members. */
typedef struct ftsort_rounds {
  size_t struct_size;        /**< `sizeof(ftsort_rounds)`. */
  /** `round_count` rounds. NULL: one round for each dimension, from the highest down, as in the papers; with
   * `propose` the nodes that exchange from then on share a value in each (in the round of dimension s the subcubes
   * of s + 1 dimensions), as in HyperQuickSort. */
  const ftsort_round *plan;
  size_t round_count;        /**< The number of rounds of `plan`; 0 if it is NULL. */
  int32_t ascending;         /**< Not 0: without `plan`, the rounds go from the lowest dimension up. */
  /** Not 0: `begin` creates every initial state, and the states of the ranks are not read. For inputs that any rank
   * can create or read again: no data are ever lost, because a run with too few copies starts again (not with
   * FTSORT_STORE_DIRECTORY, whose files can be lost). */
  int32_t begin_all;
  /** The largest size of a proposal and of a shared value in bytes; 0: 4096. All ranks receive the values of all
   * subcubes, and keep them until the end. */
  uint32_t share_limit;
  ftsort_begin_fn begin;     /**< See `ftsort_begin_fn`; NULL: an empty state. */
  ftsort_propose_fn propose; /**< See `ftsort_propose_fn`; NULL: no value is shared. */
  ftsort_decide_fn decide;   /**< See `ftsort_decide_fn`; NULL: the proposal of the root is the shared value. */
  ftsort_emit_fn emit;       /**< See `ftsort_emit_fn`; NULL: a node sends its whole state, without a copy. */
  ftsort_absorb_fn absorb;   /**< See `ftsort_absorb_fn`; not NULL. */
  /** Passed to the callbacks and never read. The data that it points to must not change during the call. */
  void *user;
  /** Not 0: the states after every `store_every` rounds, and after the last one, are stored under the name of
   * ftsort_store_open. A run continues with the stored states, also of another job, and returns those of the last
   * round at once. 1 stores every round; a greater number writes less, and repeats more rounds after a failure
   * that takes states along. */
  uint32_t store_every;
} ftsort_rounds;

#define FTSORT_ROUNDS_INIT { sizeof(ftsort_rounds), NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0 }

/**
 * Runs an algorithm of the caller on the virtual hypercube, and tolerates failures. [C]
 *
 * Each rank provides the initial state of its own node. Then, round after round, the callbacks of the algorithm are
 * called for every node on its executor, and ftsort moves the messages, keeps the states of every round in the
 * configured store, and commits the round by an agreement. After a failure it restores the states of failed ranks
 * and replays the round. Events, statistics, fault schedules, timeouts and limits are those of ftsort_run. In fault
 * schedules round 0 loads, and rounds 1 to R are those of the algorithm. Works for any number of ranks. (The
 * interface that the 2024 paper leaves to future work in Section 6.)
 *
 * Put all rounds of an algorithm into one call, because nothing is kept between calls. With FTSORT_STORE_RELOAD
 * `reload` returns the initial state of a rank, and the run restarts from these.
 *
 * With `rounds.store_every` the states are stored under the name of ftsort_store_open, as by ftsort_store_commit.
 * If all processes of the job end, the same call of the next job continues with the stored states, and does not use
 * `state`, which may then be NULL with `bytes` 0. After the last round ftsort_store_get returns the final states, a
 * further call returns them at once, and ftsort_result_recover takes them from there; ftsort_store_clear discards
 * them. Rounds continue only if `plan`, `share_limit`, `begin_all` and the set of callbacks are the same; the
 * program has to change the name when the callbacks compute something else. One rank has no rounds without a plan,
 * and stores nothing.
 *
 * \param rounds  the algorithm, the same on all ranks except `user`; borrowed for the call
 * \param state   the initial state of the node of this rank; copied; any alignment; NULL if `bytes` is 0; not read
 *                with `rounds.begin_all`
 * \param bytes   the size of `state`; may differ between ranks
 * \param result  receives the final states of the nodes that this rank executes: the elements of a block are the
 *                bytes of a state; release it with ftsort_result_free; NULL after an error
 * \return FTSORT_OK; FTSORT_ERR_CALLBACK if a callback or `reload` refuses, shares more than `share_limit`, or is
 *         not pure (the text names the callback, the node and the round); FTSORT_ERR_DATA_LOST; FTSORT_ERR_CORRUPT;
 *         FTSORT_ERR_ARGUMENT on all ranks if `rounds` differs between ranks, or if the stored states are not of
 *         these rounds; FTSORT_ERR_STATE also for `store_every` without ftsort_store_open; or another status of
 *         "Collective calls". After an error the stored states stay
 */
ftsort_status ftsort_rounds_run(ftsort *group, const ftsort_rounds *rounds, const void *state, size_t bytes,
                                ftsort_result **result);

/* ---- Simulation ------------------------------------------------------------------------------------------ */

/** Options of ftsort_rounds_simulate. Start from FTSORT_SIMULATION_OPTIONS_INIT; zero selects the default. Later
 * versions append members. Borrowed for the call. */
typedef struct ftsort_simulation_options {
  size_t struct_size; /**< `sizeof(ftsort_simulation_options)`. */
  /** Decides the order of all steps and messages, the ranks that fail, and when they do. The same seed gives the
   * same run. */
  uint64_t seed;
  uint32_t ranks;     /**< The number of ranks, up to 256. 0: 4. */
  uint32_t failures;  /**< The number of ranks that fail, at steps that the seed chooses; less than `ranks`. */
  /** The store, one of `ftsort_store`. FTSORT_STORE_DIRECTORY is simulated in memory; FTSORT_STORE_RELOAD returns
   * the initial states again. */
  int32_t store;
  /** The copies beside the original of FTSORT_STORE_MEMORY, or the shares of FTSORT_STORE_PARITY. 0: 1. */
  uint32_t replicas;
  /** Not 0: with every store the initial states can be read again, so that no data are lost. */
  int32_t reload;
  /** Failures that replace those of the seed: `RANK@STEP`, separated by commas or spaces, as
   * ftsort_last_error(NULL) reports them for a run that went wrong. NULL: the seed chooses. */
  const char *schedule;
} ftsort_simulation_options;

#define FTSORT_SIMULATION_OPTIONS_INIT { sizeof(ftsort_simulation_options), 0, 0, 0, 0, 0, 0, NULL }

/**
 * Runs an algorithm of the caller on simulated ranks that fail, in this process and without MPI. [L]
 *
 * Tests the fault tolerance of an algorithm in milliseconds, for thousands of seeds, with the engine of
 * ftsort_rounds_run. Every callback is called twice to check that it is pure (FTSORT_CHECK_PURITY), on a stack of 8
 * MiB. No states are stored: `rounds.store_every` is ignored.
 *
 * \param rounds      the algorithm; borrowed for the call
 * \param simulation  borrowed for the call; NULL selects all defaults
 * \param states      the initial states of the ranks, in their order; an entry may be NULL if its size is 0; not
 *                    read with `rounds.begin_all`
 * \param bytes       the sizes of the initial states
 * \param result      receives the final states of all nodes, except those of a rank that fails after the last
 *                    round; release it with ftsort_result_free; NULL after an error
 * \return the status of the survivors: FTSORT_OK, FTSORT_ERR_DATA_LOST if more ranks failed at once than the store
 *         has copies, or a rank failed before its initial state was kept, FTSORT_ERR_CALLBACK and others;
 *         FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE if the library was built without the simulator; FTSORT_ERR_INTERNAL
 *         if ranks hang or return different statuses. ftsort_last_error(NULL) has the text, with the failures
 */
ftsort_status ftsort_rounds_simulate(const ftsort_rounds *rounds, const ftsort_simulation_options *simulation,
                                     const void *const *states, const size_t *bytes, ftsort_result **result);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_ROUNDS_H */
