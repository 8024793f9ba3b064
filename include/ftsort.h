/* ftsort: a fault-tolerant distributed sort for MPI programs.
 *
 * Sorts data spread over the processes of an MPI program, and finishes although processes are
 * killed while it sorts: any of them, at any moment, up to all but one.
 *
 *   ftsort_prepare();                       before MPI_Init
 *   MPI_Init(&argc, &argv);
 *   ftsort_init(MPI_COMM_WORLD, NULL, &group);
 *   ftsort_run(group, &record, data, count, &result);
 *   ...                                     read the blocks of the result
 *   ftsort_result_free(result);
 *   ftsort_leave(group, 0);                 the way out that also ends after faults
 *
 * [C] collective over the surviving ranks: all of them call it, and all of them return the same
 * status (only a wrong argument is FTSORT_ERR_ARGUMENT on the ranks that passed it, and
 * FTSORT_ERR_PEER_ARGUMENT on the others).  [L] local.
 *
 * const T * is borrowed for the call.  T **out is yours to free, once.  Zero is the default in every
 * struct, and a struct starts with its size, so that a program compiled against an older header
 * goes on working.  An object is used by one thread at a time; MPI is called from that thread alone.
 * Nothing is printed; no signal handler, error handler or communicator of yours is touched (but see
 * ftsort_prepare, if you call it).
 *
 * Fault injection, for tests and experiments: ftsort_config.faults, or the environment variable
 * FTSORT_FAULTS, holds words separated by spaces:
 *   RANK@ROUND         rank RANK kills itself (SIGKILL) at the start of that round of ftsort_run:
 *                      0 loads, 1 to d exchange, d+1 makes the result; or of ftsort_rounds_run: 0 loads,
 *                      the others are the caller's
 *   RANK@ROUND.POINT   POINT: begin; send (messages are posted); store (before the new version is
 *                      stored); stored; commit (agreed on, nobody has acted on it yet); recover (in
 *                      the recovery of that round)
 *                      In calls that take a tree 1 keeps what is contributed, and 2 carries it; only
 *                      begin, send and commit happen there.
 *   RANK~ROUND.TARGET  data of rank RANK are changed in that round, once, or whenever it comes to that
 *                      with a * at the end. TARGET: message (a block that it sends), block (that it
 *                      has), input (its own, after it was copied), replica (another's input or block
 *                      that it keeps), stored (a block that it puts into a store that all see), result
 *                      (that it has made), order (its first and last half swapped), swap (a record of
 *                      what it sends, for one of what it keeps or sends to another)
 *   RANK~ROUND.TARGET.CHANGE/PLACE
 *                      CHANGE: flip (one bit; if not given), key (a record becomes another one), copy
 *                      (it becomes its neighbour), drop (it is left out), double (it comes twice).
 *                      PLACE: a number that chooses the record, and the bit; may be left out
 *   RANK@TIMEms        by a timer, so many milliseconds after ftsort_run or ftsort_rounds_run was called
 *   none | one | half | all-but-one, with seed=S and window=Tms
 *                      that many victims, drawn by the seed; they die at the starts of random rounds
 *                      (the papers' experiments), or with a window at random instants within it
 * for example FTSORT_FAULTS="half seed=7 window=300ms".
 *
 * Trace: with ftsort_config.trace, or the environment variable FTSORT_TRACE, each rank writes what it does
 * to PREFIX.RANK.json, for Perfetto (ui.perfetto.dev) or chrome://tracing. It is Chrome's trace event format:
 * a JSON array with an event in each line, whose end viewers do not need, so that the file of a rank that
 * was killed can be opened, too; should its last line be cut off, by Perfetto alone, and all by PREFIX.json.
 * pid is the rank; times are of the system's clock, so that arrows between hosts whose clocks differ by more
 * than a message takes may be missing.
 *   whole sort, whole rounds       ftsort_run, ftsort_rounds_run; args at the end: their status
 *   sort, exchange, merge, store, commit, repair
 *                                  the phases of ftsort_stats; args: round, epoch (repairs so far)
 *   round committed, fault, covered, restored, replay, demoted, rejoined, corrupt
 *                                  what ftsort_event_kind tells, at the instant at which it is told
 *   send, receive                  a message with records, at the instant at which it is sent or has been
 *                                  waited for, joined by an arrow; args: peer, bytes, number (the messages
 *                                  from one rank to another in a round, from 0)
 * ftsort_init replaces files of an earlier run, and fails with FTSORT_ERR_ARGUMENT on all ranks if one
 * cannot be made; what cannot be written later stops the trace of that rank, and ftsort_log_fn is told.
 * Groups that follow each other in a process write to the same files; groups that work at the same time,
 * on several threads or of different processes, need a prefix each. The ranks' files stay where they are
 * after PREFIX.json is made; what ranks wrote on other hosts, where the merging rank does not see it, is
 * not in it.
 */


#ifndef FTSORT_H
#define FTSORT_H

/* Generated by cbindgen from src/capi: do not edit. */

#include <stddef.h>
#include <stdint.h>
#include <mpi.h>

#define FTSORT_VERSION_MAJOR 0
#define FTSORT_VERSION_MINOR 1
#define FTSORT_VERSION_PATCH 0

/* A configuration with all defaults: ftsort_config config = FTSORT_CONFIG_INIT; */
#define FTSORT_CONFIG_INIT \
  { sizeof(ftsort_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL }

/* A record that is a plain number: ftsort_record record = FTSORT_RECORD_PLAIN(double, FTSORT_KEY_F64); */
#define FTSORT_RECORD_PLAIN(T, KIND) \
  { sizeof(ftsort_record), sizeof(T), 0, 0, (KIND), 0, 0, NULL, NULL }

/* A struct that is sorted by one of its members, a number: FTSORT_RECORD_MEMBER(struct star, mass, FTSORT_KEY_F32) */
#define FTSORT_RECORD_MEMBER(T, MEMBER, KIND) \
  { sizeof(ftsort_record), sizeof(T), offsetof(T, MEMBER), 0, (KIND), 0, 0, NULL, NULL }

/* A struct that is sorted by one of its members, an array of bytes, in the order of memcmp. */
#define FTSORT_RECORD_BYTES(T, MEMBER) \
  { sizeof(ftsort_record), sizeof(T), offsetof(T, MEMBER), sizeof(((T *)0)->MEMBER), FTSORT_KEY_BYTES, 0, 0, NULL, NULL }

/* Records that are sorted by what FUNCTION says of two of them. */
#define FTSORT_RECORD_COMPARE(T, FUNCTION, USER) \
  { sizeof(ftsort_record), sizeof(T), 0, 0, FTSORT_KEY_COMPARE, 0, 0, (FUNCTION), (USER) }

/* A tree with all defaults: ftsort_tree_options options = FTSORT_TREE_OPTIONS_INIT; */
#define FTSORT_TREE_OPTIONS_INIT \
  { sizeof(ftsort_tree_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/* A monitor with all defaults: ftsort_monitor_options config = FTSORT_MONITOR_OPTIONS_INIT; */
#define FTSORT_MONITOR_OPTIONS_INIT \
  { sizeof(ftsort_monitor_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0 }

/* A view to be filled in: ftsort_monitor_view view = FTSORT_MONITOR_VIEW_INIT; */
#define FTSORT_MONITOR_VIEW_INIT \
  { sizeof(ftsort_monitor_view), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* An algorithm with all defaults: ftsort_rounds rounds = FTSORT_ROUNDS_INIT; */
#define FTSORT_ROUNDS_INIT \
  { sizeof(ftsort_rounds), NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL }

/* In ftsort_round.dimension and ftsort_task.dimension: nobody sends anything. */
#define FTSORT_NO_EXCHANGE UINT32_MAX

/* In ftsort_round.share: all nodes. */
#define FTSORT_SHARE_ALL UINT32_MAX

/* Simulated ranks with all defaults: ftsort_simulation_options simulation = FTSORT_SIMULATION_OPTIONS_INIT; */
#define FTSORT_SIMULATION_OPTIONS_INIT \
  { sizeof(ftsort_simulation_options), 0, 0, 0, 0, 0, 0, NULL }

/* Statistics to be filled in: ftsort_stats stats = FTSORT_STATS_INIT; */
#define FTSORT_STATS_INIT \
  { sizeof(ftsort_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * The values of `ftsort_status`.
 *
 * A collective call returns the same status on all surviving ranks, with one exception: where an
 * argument is wrong on some ranks only, these get `FTSORT_ERR_ARGUMENT` and the others
 * `FTSORT_ERR_PEER_ARGUMENT`. `ftsort_last_error` gives the text that goes with it.
 */
typedef enum ftsort_status_code {
  /**
   * Success.
   */
  FTSORT_OK = 0,
  /**
   * An argument is wrong. Fix the call; nothing changed.
   */
  FTSORT_ERR_ARGUMENT = -1,
  /**
   * An argument is wrong on another rank. Nothing changed.
   */
  FTSORT_ERR_PEER_ARGUMENT = -2,
  /**
   * The group is poisoned, or the call came at a time when it is not allowed. Nothing changed.
   */
  FTSORT_ERR_STATE = -3,
  /**
   * MPI was built without ULFM, or started without it (`mpirun --with-ft ulfm`), and the
   * configuration does not accept that.
   */
  FTSORT_ERR_NO_ULFM = -20,
  /**
   * A rank ran out of memory. The group stays usable.
   */
  FTSORT_ERR_MEMORY = -21,
  /**
   * A rank could not write or read the store. The group stays usable.
   */
  FTSORT_ERR_STORE = -22,
  /**
   * A callback refused on some rank. The group stays usable.
   */
  FTSORT_ERR_CALLBACK = -23,
  /**
   * Data of crashed ranks cannot be got back: the store held too few copies of it. This result
   * is lost; the group stays usable.
   */
  FTSORT_ERR_DATA_LOST = -40,
  /**
   * Data were found changed (see `ftsort_check`), and there is nothing to get them back from, or no
   * end of it. No wrong result is given out. The group stays usable.
   */
  FTSORT_ERR_CORRUPT = -41,
  /**
   * Fewer ranks are left, as far as this one can see, than `min_survivors` of the configuration asks
   * for: the others are dead, or this rank is cut off from them. The group is poisoned: only free it.
   */
  FTSORT_ERR_EXCLUDED = -60,
  /**
   * MPI failed in a way that is not a crashed process. The group is poisoned: only free it.
   */
  FTSORT_ERR_MPI = -61,
  /**
   * A defect in ftsort. The group is poisoned: only free it.
   */
  FTSORT_ERR_INTERNAL = -62,
} ftsort_status_code;

/**
 * What the key of a record is.
 */
typedef enum ftsort_key {
  /**
   * `int8_t`.
   */
  FTSORT_KEY_I8 = 1,
  /**
   * `uint8_t`.
   */
  FTSORT_KEY_U8 = 2,
  /**
   * `int16_t`.
   */
  FTSORT_KEY_I16 = 3,
  /**
   * `uint16_t`.
   */
  FTSORT_KEY_U16 = 4,
  /**
   * `int32_t`.
   */
  FTSORT_KEY_I32 = 5,
  /**
   * `uint32_t`.
   */
  FTSORT_KEY_U32 = 6,
  /**
   * `int64_t`.
   */
  FTSORT_KEY_I64 = 7,
  /**
   * `uint64_t`.
   */
  FTSORT_KEY_U64 = 8,
  /**
   * `float`, in IEEE 754's total order: -NaN, -infinity, ..., -0.0, +0.0, ..., +infinity, +NaN.
   */
  FTSORT_KEY_F32 = 9,
  /**
   * `double`, in the same order.
   */
  FTSORT_KEY_F64 = 10,
  /**
   * `key_bytes` bytes, in the order of `memcmp`.
   */
  FTSORT_KEY_BYTES = 11,
  /**
   * What `compare` says of two records.
   */
  FTSORT_KEY_COMPARE = 12,
} ftsort_key;

/**
 * The sorting algorithm.
 */
typedef enum ftsort_algorithm {
  /**
   * The fastest for this number of ranks and this size: `FTSORT_SAMPLESORT`; on 256 ranks and more,
   * with so little data that messages would be smaller than 2 KiB, `FTSORT_HYPERQUICKSORT`.
   * `ftsort_stats.algorithm` tells.
   */
  FTSORT_AUTO = 0,
  /**
   * HyperQuickSort (Wagar 1987; fault-tolerant: Camargo and Duarte 2024, Algorithm 1).
   * log2(N) rounds, in each of which a pivot is agreed on in each subcube and a node sends about
   * half of its block to its neighbour.
   */
  FTSORT_HYPERQUICKSORT = 1,
  /**
   * QuickMerge (Quinn 1989; 2024, Algorithm 2). As HyperQuickSort, but all pivots are agreed on in
   * the first round.
   */
  FTSORT_QUICKMERGE = 2,
  /**
   * Modified QuickMerge (2024, Section 4.2): with `FTSORT_PIVOT_PAPER` its pivots are the averages of
   * those of all ranks; otherwise the same as `FTSORT_QUICKMERGE`.
   */
  FTSORT_QUICKMERGE_MODIFIED = 3,
  /**
   * Bitonic sort of any input (2024, Algorithm 4; 2019). log2(N) (log2(N) + 1) / 2 rounds, in each of
   * which a node sends its whole block: traffic does not depend on the keys. Blocks of the longest
   * input's size fill up from node 0. Its blocks cannot be made again from inputs, so that stores
   * keep every round's.
   */
  FTSORT_BITONIC = 4,
  /**
   * Bitonic sort of input that is a bitonic sequence already, all ranks' records one after the other
   * (up and then down, from anywhere on; 2024, Algorithm 3): log2(N) rounds and one that checks.
   * `FTSORT_ERR_ARGUMENT` on all ranks where it is not, or counts differ, or there are not 2^d ranks.
   */
  FTSORT_BITONIC_MERGE = 5,
  /**
   * Sample sort: one exchange, in which every rank sends each other its part.
   */
  FTSORT_SAMPLESORT = 6,
} ftsort_algorithm;

/**
 * Where the blocks of each round are kept, so that a crashed rank's work can be taken over.
 */
typedef enum ftsort_store {
  /**
   * Each rank's input is kept in the memory of `replicas` other ranks too, on other hosts where
   * there are any; lost blocks are made again from pieces of inputs. Survives up to `replicas`
   * faults at once, and any number one after another, down to the last rank: the survivors make
   * new copies after each. Needs no disk.
   */
  FTSORT_STORE_MEMORY = 0,
  /**
   * As files in `store_directory`, which all ranks must see. Survives any faults, any number,
   * as long as one rank lives. A file is written under a temporary name, checksummed and then
   * renamed; a torn or corrupt file counts as absent. Files are closed but not forced to the
   * medium, so what a whole host had not yet written out when it failed can be missing.
   */
  FTSORT_STORE_DIRECTORY = 1,
  /**
   * Nowhere. Faults are detected, and a fault that loses data ends the sort with
   * `FTSORT_ERR_DATA_LOST` on all survivors.
   */
  FTSORT_STORE_NONE = 2,
  /**
   * Nowhere, but `reload` gives a dead rank's input again: from its file, its database, its
   * generator. Survives any faults, any number, as long as one rank lives. Costs nothing until
   * a fault, and then loading and sorting that input again.
   */
  FTSORT_STORE_RELOAD = 3,
} ftsort_store;

/**
 * How pivots are chosen, in HyperQuickSort and the QuickMerges.
 */
typedef enum ftsort_pivot {
  /**
   * From a sample of all blocks in the subcube, in the total order (key, rank, position), and
   * weighted by the surviving ranks on each side: balanced for every distribution of keys.
   */
  FTSORT_PIVOT_SAMPLED = 0,
  /**
   * As in the papers: HyperQuickSort takes the median of the root's own list, QuickMerge evenly
   * spaced records of the root's own list, modified QuickMerge the averages of all ranks' lists (for
   * keys that are no numbers their middles). Can be far off balance.
   */
  FTSORT_PIVOT_PAPER = 1,
} ftsort_pivot;

/**
 * How the survivors come to know the same set of faulty ranks.
 */
typedef enum ftsort_repair {
  /**
   * Agree and acknowledge on one communicator that is made once and never repaired.
   */
  FTSORT_REPAIR_AGREE = 0,
  /**
   * The papers' FaultDetection: barrier, agree, revoke, acknowledge, shrink, keep identities.
   * Makes a new communicator at every fault, which today's MPI libraries do not always survive
   * when another rank dies meanwhile. For comparison.
   */
  FTSORT_REPAIR_SHRINK = 1,
} ftsort_repair;

/**
 * What an event tells of.
 */
typedef enum ftsort_event_kind {
  /**
   * A round was committed: `round` of `rounds`.
   */
  FTSORT_EVENT_ROUND = 1,
  /**
   * `rank` was found dead.
   */
  FTSORT_EVENT_FAILURE = 2,
  /**
   * Node `rank` is from now on executed by rank `peer`.
   */
  FTSORT_EVENT_EXECUTOR = 3,
  /**
   * This rank got the block of node `rank` back; `peer` is the rank that held a copy of all of
   * it, or -1: from the directory, or made again from pieces of inputs.
   */
  FTSORT_EVENT_RESTORED = 4,
  /**
   * `round` starts again, because ranks died in it.
   */
  FTSORT_EVENT_REPLAY = 5,
  /**
   * Data were found changed in `round`, which starts again: rank `rank` is accused, or nobody (-1),
   * by rank `peer`, and `finding` says of what. One that is accused twice in a sort executes no node
   * any more for the rest of it.
   */
  FTSORT_EVENT_CORRUPT = 6,
  /**
   * A monitor does not recommend `rank`, which executes no node from now on.
   */
  FTSORT_EVENT_EXCLUDED = 7,
  /**
   * `rank` is recommended again, and executes nodes from now on.
   */
  FTSORT_EVENT_REJOINED = 8,
} ftsort_event_kind;

/**
 * What was found wrong with data: `ftsort_event.finding`. The first four are found by
 * `FTSORT_CHECK_DIGEST`, the others by the checks of bitonic sort, which accuse nobody. Later versions
 * may add some.
 */
typedef enum ftsort_finding {
  /**
   * The event is not `FTSORT_EVENT_CORRUPT`.
   */
  FTSORT_FINDING_NONE = 0,
  /**
   * A block came that is not what its sender says that it sent.
   */
  FTSORT_FINDING_MESSAGE = 1,
  /**
   * A block is not what was made of its records, or what was kept of it.
   */
  FTSORT_FINDING_MEMORY = 2,
  /**
   * A block of the result is not in order, or does not begin where the one before ends.
   */
  FTSORT_FINDING_ORDER = 3,
  /**
   * All results together are not all inputs together.
   */
  FTSORT_FINDING_WHOLE = 4,
  /**
   * `FTSORT_CHECK_PROGRESS`: a sequence does not go up, or down, as it must at the end of a stage; or
   * the records that a node has, or sends, are in no order.
   */
  FTSORT_FINDING_PROGRESS = 5,
  /**
   * `FTSORT_CHECK_FEASIBILITY`: a sequence is no permutation of the one that it was made from.
   */
  FTSORT_FINDING_FEASIBILITY = 6,
  /**
   * `FTSORT_CHECK_CONSISTENCY`: of the same node something else was heard before, or a node's records
   * are not those that are told of it.
   */
  FTSORT_FINDING_CONSISTENCY = 7,
  /**
   * With the same: a message does not tell of a node of which it must.
   */
  FTSORT_FINDING_ABSENCE = 8,
} ftsort_finding;

/**
 * What is checked, so that no wrong result is given out whatever memory, network or files do to the
 * data: bits to be combined.
 */
typedef enum ftsort_check {
  /**
   * Every block is known by a digest of its records as a multiset, from the caller's own array to the
   * result: 128 bits that a block keeps when it is divided, sent and united. What comes is compared
   * with what its sender says, what is made with what it is made of, and all results with all inputs;
   * results must be in order, too. A change is missed with probability n / 2^59 at most, for n records,
   * by whatever does not know the digest's key (the proof is in `docs/reliable.md`). Not seen: what
   * changes the caller's array before the call, or the result after it.
   *
   * What was changed is got back: blocks of the last committed version from copies that are still
   * right, where the store has any, or a `reload`; otherwise `FTSORT_ERR_CORRUPT` on all ranks.
   *
   * In `ftsort_rounds_run` states are known by their bytes: what comes, is stored or got back must
   * be what was sent or stored. What the callbacks make of it is theirs.
   */
  FTSORT_CHECK_DIGEST = 1,
  /**
   * Progress: at the end of a stage of bitonic sort every node sees that each half of the bitonic
   * sequence goes one way (McMillin and Ni 1989, Section 3, Figure 4a).
   *
   * This, `FTSORT_CHECK_FEASIBILITY` and `FTSORT_CHECK_CONSISTENCY` are given together, with
   * `FTSORT_BITONIC` only: the paper's algorithm S_FT (Figure 3), log2(N) rounds more than plain
   * bitonic sort. Messages, blocks and copies carry what was heard of all nodes: in memory and on the
   * way up to two times the records of all N nodes, so it is for few records. What it finds, and who is
   * accused, `docs/reliable.md` tells: not a lie about a node's own input, nor what is changed after
   * the stages, as the result, which `FTSORT_CHECK_DIGEST` finds; both can be combined.
   *
   * After an accusation the round starts again from copies of the last version, or from a `reload`;
   * where there are none, or where the copies are wrong too, `FTSORT_ERR_CORRUPT` on all ranks.
   */
  FTSORT_CHECK_PROGRESS = 2,
  /**
   * Feasibility: the sequence is a permutation of the one that it was made from (Figure 4b).
   */
  FTSORT_CHECK_FEASIBILITY = 4,
  /**
   * Consistency: what a node is told of another is what it has heard before (Figure 4c). As printed it
   * does not hold what the paper's Theorem 3 says. So neighbours within a sorted half also tell each
   * other the whole sequence of the stage before (`Rule::Repeated`): then up to d - 1 faulty nodes in
   * each subcube of dimension d do not make a wrong result pass.
   */
  FTSORT_CHECK_CONSISTENCY = 8,
  /**
   * `ftsort_rounds_run` only: every callback is called twice, the second time with its bytes at other
   * addresses, and must give the same; otherwise `FTSORT_ERR_CALLBACK`, whose text names the callback,
   * the node and the round. For tests. Not seen: what depends on the rank or the process.
   */
  FTSORT_CHECK_PURITY = 16,
} ftsort_check;

/**
 * What `ftsort_tree_merge` makes of two contributions.
 */
typedef enum ftsort_tree_op {
  /**
   * One after the other, in the order of nodes.
   */
  FTSORT_TREE_CONCATENATE = 0,
  /**
   * Two sorted lists of records of `record` become one. A list that is not sorted is refused.
   */
  FTSORT_TREE_SORTED = 1,
  /**
   * Arrays of numbers of the kind `key`, of the same length on all ranks: added place by place.
   * Integers go round where they overflow.
   */
  FTSORT_TREE_SUM = 2,
  /**
   * As before; the smaller number of each place.
   */
  FTSORT_TREE_MIN = 3,
  /**
   * As before; the greater number of each place.
   */
  FTSORT_TREE_MAX = 4,
  /**
   * As before; 1 where neither is 0, else 0.
   */
  FTSORT_TREE_AND = 5,
  /**
   * As before; 1 where one of them is not 0, else 0.
   */
  FTSORT_TREE_OR = 6,
  /**
   * What `merge` says.
   */
  FTSORT_TREE_CALL = 7,
} ftsort_tree_op;

/**
 * How a monitor runs.
 */
typedef enum ftsort_monitor_mode {
  /**
   * `FTSORT_MONITOR_THREAD` where all ranks were granted MPI_THREAD_MULTIPLE, else
   * `FTSORT_MONITOR_FOREGROUND`.
   */
  FTSORT_MONITOR_AUTO = 0,
  /**
   * A thread of its own on each rank, which tests others and answers tests on a private communicator at
   * any time. Needs MPI_THREAD_MULTIPLE.
   */
  FTSORT_MONITOR_THREAD = 1,
  /**
   * At the commits of a sort, at most once an interval, each rank tells all how it has been: how long
   * `test` takes it, or without one which part of the time it had a processor. Needs no thread and no
   * messages of its own. What is lost: nothing is noticed between sorts, nor while a round goes on; and
   * a rank is trusted to tell the truth about itself. Figures are compared with the median of all.
   */
  FTSORT_MONITOR_FOREGROUND = 2,
} ftsort_monitor_mode;

/**
 * Who tests whom.
 */
typedef enum ftsort_monitor_assignment {
  /**
   * Everybody everybody (the 2018 paper).
   */
  FTSORT_TEST_ALL = 0,
  /**
   * Each rank the first recommended one of each of its clusters c(i,s): N log2 N tests, and news reach
   * all within log2 N intervals. For many ranks.
   */
  FTSORT_TEST_VCUBE = 1,
} ftsort_monitor_assignment;

/**
 * What becomes of a slow rank's work.
 */
typedef enum ftsort_monitor_sharing {
  /**
   * All or nothing (the 2018 paper): who is not recommended executes no node.
   */
  FTSORT_SHARING_EXCLUDE = 0,
  /**
   * Past the paper: nobody is left out, and each rank's share of the result is in proportion to its
   * speed, in sixteenths: one at half speed gets half a share, one that is more than 32 times as slow
   * none. Speed is how long tests have taken of late (`alpha`), as all ranks tell each other at a commit
   * once an interval; up to a quarter more than full speed is full speed, which is the median of the
   * faster half. Whoever is recommended or not is still told, and changes nothing. It holds for sample
   * sort, HyperQuickSort and QuickMerge with `FTSORT_PIVOT_SAMPLED`, in the exchanges after the commit;
   * the papers' pivots, bitonic sorts, dense results and `ftsort_rounds_run` have the shares that they
   * have without a monitor. Each rank still sorts its own input, whatever its share of the result.
   */
  FTSORT_SHARING_WEIGHTS = 1,
} ftsort_monitor_sharing;

/**
 * A group of ranks, and who of them lives. Made by `ftsort_init`, freed by `ftsort_free`. May be
 * used by any thread, by one at a time; MPI is called from that thread. Several groups may be used by
 * several threads at once if MPI grants MPI_THREAD_MULTIPLE; make them one after the other, in the
 * same order on all ranks (Open MPI 5.0's agreements go wrong where several threads agree at once;
 * ftsort keeps its own apart, but cannot while MPI makes a communicator).
 *
 * While there is a group, the process keeps the large buffers of past jobs for the next one, since new
 * memory costs as much time as the rest of a sort: never more, with those in use, than one job used at
 * once, and on Linux so that the system takes them whenever it is short (MADV_FREE), though tools may
 * count them as used until then.
 */
typedef struct ftsort ftsort;

/**
 * Growable bytes that ftsort owns; a callback fills them. What a callback that fails has put there is
 * freed by ftsort.
 */
typedef struct ftsort_buffer ftsort_buffer;

/**
 * A monitor of a group's ranks. Belongs to its group; looked at by any thread.
 */
typedef struct ftsort_monitor ftsort_monitor;

/**
 * The sorted blocks that this rank holds: its own, and one for each node that it covers, in
 * ascending order of node. Owned by the caller; may outlive its group. May be read by several
 * threads at once.
 */
typedef struct ftsort_result ftsort_result;

/**
 * The states of the nodes that a rank executes in the end: its own, and one for each node that it covers,
 * in ascending order of node. Owned by the caller; may outlive its group. May be read by several threads
 * at once.
 */
typedef struct ftsort_rounds_result ftsort_rounds_result;

/**
 * What a tree has brought to this rank. Owned by the caller; may outlive its group. May be read by several
 * threads at once.
 */
typedef struct ftsort_tree_result ftsort_tree_result;

/**
 * What a call returned: one of `ftsort_status_code`. Later versions may add codes, so treat every
 * value below zero as a failure.
 */
typedef int32_t ftsort_status;

/**
 * Compares two records: below 0, 0 or above 0, as for `qsort`. Pure: the same answer for the same
 * bytes, on every rank, from any thread and from several at once; a total order of keys. Must not
 * throw, longjmp, or call ftsort or MPI. The records are copies, aligned as in an array that starts at
 * a multiple of 16; they may be of any rank.
 */
typedef int (*ftsort_compare_fn)(void *user, const void *a, const void *b);

/**
 * What a record is: contiguous bytes of a fixed size that may be copied freely (no pointers, for they
 * go to other processes). Start from `FTSORT_RECORD_PLAIN` (a number), `FTSORT_RECORD_MEMBER` (a struct
 * with a number in it), `FTSORT_RECORD_BYTES` or `FTSORT_RECORD_COMPARE`. Later versions append
 * fields. The same on all ranks.
 */
typedef struct ftsort_record {
  /**
   * `sizeof(ftsort_record)`.
   */
  size_t struct_size;
  /**
   * The size of a record in bytes, padding included; up to 2^28.
   */
  size_t record_bytes;
  /**
   * Where the key starts in a record; any alignment. 0 for `FTSORT_KEY_COMPARE`.
   */
  size_t key_offset;
  /**
   * The size of the key in bytes. For numbers 0 means the natural one; 0 for `FTSORT_KEY_COMPARE`.
   */
  size_t key_bytes;
  /**
   * One of `ftsort_key`.
   */
  int32_t key;
  /**
   * Not 0: the greatest key first.
   */
  int32_t descending;
  /**
   * Not 0: records with equal keys must stay in the order of ranks, and of positions within a rank's
   * input (also where descending). All algorithms do that anyway, but for `FTSORT_BITONIC_MERGE`,
   * which then fails with `FTSORT_ERR_ARGUMENT`.
   */
  int32_t stable;
  /**
   * `FTSORT_KEY_COMPARE` only. Kept until `ftsort_run` returns.
   */
  ftsort_compare_fn compare;
  /**
   * Passed to `compare` as it is; never read.
   */
  void *user;
} ftsort_record;

/**
 * Gives the input of `rank` again, byte for byte as that rank passed it to `ftsort_run` or
 * `ftsort_rounds_run`, into `out`
 * (see `ftsort_buffer_resize`). Called on the rank that covers `rank`, when that input is needed and
 * nobody has it: with `FTSORT_STORE_RELOAD`, and with the other stores where theirs is lost. What it
 * gives is checked by size and hash against what the rank had, if that lived to tell. Returns 0, or
 * anything else to refuse; a refusal, or other bytes, end the sort with `FTSORT_ERR_CALLBACK`. The
 * same rules as for `ftsort_event_fn`; where a rank has several threads, they sort what it gave before
 * (and may call `compare`) while it makes the next.
 */
typedef int (*ftsort_reload_fn)(void *user, int32_t rank, struct ftsort_buffer *out);

/**
 * What `on_event` is told. Valid during the callback only.
 */
typedef struct ftsort_event {
  /**
   * `sizeof(ftsort_event)` of the library; later versions append fields.
   */
  size_t struct_size;
  /**
   * One of `ftsort_event_kind`. Ignore kinds that you do not know.
   */
  int32_t kind;
  /**
   * See the kind; -1 where it says nothing.
   */
  int32_t rank;
  /**
   * See the kind; -1 where it says nothing.
   */
  int32_t peer;
  /**
   * The round: 0 is loading; of a sort the last one (`rounds - 1`) makes the result.
   */
  uint32_t round;
  /**
   * How many rounds this sort has.
   */
  uint32_t rounds;
  /**
   * How many repairs this group has been through.
   */
  uint32_t epoch;
  /**
   * The surviving rank with the smallest number. All survivors are told the same, but for
   * `FTSORT_EVENT_RESTORED`: where one of them is to speak for all, let it be this one.
   */
  int32_t speaker;
  /**
   * One of `ftsort_finding`: of `FTSORT_EVENT_CORRUPT`, what was found.
   */
  int32_t finding;
} ftsort_event;

/**
 * Told of what happens, after it has been agreed on. Runs on the thread that called ftsort, on
 * every rank, during any collective call. Must not throw, longjmp, or call a function of ftsort with
 * this group, not even one that only reads.
 */
typedef void (*ftsort_event_fn)(void *user, const struct ftsort_event *event);

/**
 * Receives one line for people, without a newline. `level`: 0 error, 1 warning, 2 information.
 * `line` is valid during the callback only. The same rules as for `ftsort_event_fn`.
 */
typedef void (*ftsort_log_fn)(void *user, int level, const char *line);

/**
 * How a group works. Start from `FTSORT_CONFIG_INIT`; zero always means the default. Later
 * versions append fields, and take a shorter struct as one whose missing fields are zero.
 *
 * All ranks pass the same `algorithm`, `store`, `replicas`, `pivot`, `repair`, `dense`, `checks` and
 * `min_survivors`, and either all or none a `reload` and a `timeout_ms`; the rest may differ.
 */
typedef struct ftsort_config {
  /**
   * `sizeof(ftsort_config)`.
   */
  size_t struct_size;
  /**
   * One of `ftsort_algorithm`.
   */
  int32_t algorithm;
  /**
   * One of `ftsort_store`.
   */
  int32_t store;
  /**
   * One of `ftsort_pivot`.
   */
  int32_t pivot;
  /**
   * One of `ftsort_repair`.
   */
  int32_t repair;
  /**
   * Not 0: each survivor gets one block, all of the same size (but for one record), in the order of
   * ranks, also after faults. Costs two small rounds and moves what is out of place.
   */
  int32_t dense;
  /**
   * `FTSORT_STORE_MEMORY` only: copies of each input beside the original. 0: one.
   */
  uint32_t replicas;
  /**
   * Threads for local sorting and merging. 0: the processors that this process may use, divided
   * by the living ranks on this host, at least one; as ranks die, survivors use what they leave. They start
   * when there is work for them, and end with the group; what cannot be started is done without.
   */
  uint32_t threads;
  /**
   * Not 0: an MPI without ULFM is accepted; faults are then not survived.
   */
  int32_t accept_no_ulfm;
  /**
   * Milliseconds without any progress, on a wait for other ranks, after which a call gives up with
   * `FTSORT_ERR_MPI`: longer than any rank's local sort takes. 0: never. For ranks that are stopped
   * or cut off without MPI noticing (it trusts the kernel unless its heartbeat detector is on),
   * and for defects of MPI's agreement. The group is poisoned afterwards: leave with
   * `ftsort_leave`. Not with `FTSORT_REPAIR_SHRINK`, whose barriers cannot be given up.
   */
  uint32_t timeout_ms;
  /**
   * How many ranks must be left for the group to go on; 0 and 1: one. With fewer, calls fail with
   * `FTSORT_ERR_EXCLUDED`. For networks that can fall apart, where each part takes the other for
   * dead: with more than half of the ranks at most one part goes on.
   */
  uint32_t min_survivors;
  /**
   * Bytes that ftsort's blocks and messages may take in this process, all groups together. What
   * would pass it fails with `FTSORT_ERR_MEMORY` on all ranks, before it is allocated. What ranks
   * tell each other to agree (some records of each rank in every round) counts, but is not limited.
   * 0: this rank's part of what the system has available, divided evenly by the living ranks on this
   * host, and 8 MiB in any case.
   */
  size_t memory_limit;
  /**
   * `FTSORT_STORE_DIRECTORY` only: an existing directory that all ranks can write and see.
   * Copied. Files named `ftsort-*` in it are the library's, and are removed at the end.
   */
  const char *store_directory;
  /**
   * Faults to inject, for tests and experiments: see "Fault injection". Copied. NULL: the
   * environment variable `FTSORT_FAULTS`; an empty string: none.
   */
  const char *faults;
  /**
   * See `ftsort_reload_fn`; NULL: inputs cannot be got again.
   */
  ftsort_reload_fn reload;
  /**
   * See `ftsort_event_fn`; NULL: nobody is told.
   */
  ftsort_event_fn on_event;
  /**
   * See `ftsort_log_fn`; NULL: nobody is told.
   */
  ftsort_log_fn on_log;
  /**
   * Passed to the callbacks as it is; never read.
   */
  void *user;
  /**
   * Bits of `ftsort_check`; 0: data are trusted, but for files, which have checksums. The same on all
   * ranks.
   */
  uint32_t checks;
  /**
   * Where the time goes is written to files whose names begin with this: `PREFIX.RANK.json` by each
   * rank, while it works, and `PREFIX.json` with all of them by the lowest surviving rank in
   * `ftsort_leave` or `ftsort_free`; see "Trace". Copied. NULL: the environment variable
   * `FTSORT_TRACE`; an empty string: none. May differ between ranks.
   */
  const char *trace;
} ftsort_config;

/**
 * One sorted block. Borrowed from its result.
 */
typedef struct ftsort_block {
  /**
   * The node whose block it is.
   */
  int32_t node;
  /**
   * The records, in order; those of numbers are aligned to their size. Not NULL, also if `count` is 0.
   */
  const void *data;
  /**
   * How many records.
   */
  size_t count;
  /**
   * Where the block starts in the global order, in records.
   */
  uint64_t offset;
} ftsort_block;

/**
 * What one round is like.
 */
typedef struct ftsort_round {
  /**
   * Every node exchanges with node xor 2^dimension; `FTSORT_NO_EXCHANGE`: nobody sends anything, and
   * `absorb` alone is called.
   */
  uint32_t dimension;
  /**
   * The nodes that differ in the lowest so many bits alone share something before they act: more than
   * `dimension` if they exchange. `FTSORT_SHARE_ALL`: all nodes. 0: what was shared last holds on.
   */
  uint32_t share;
} ftsort_round;

/**
 * Makes the state before the first round of a node whose home brings none: where the number of ranks is
 * no power of two, or a rank was known to be dead before the call; with `begin_all` that of every node.
 * Pure, as all of these callbacks: the same bytes for the same arguments, on every rank, at any time,
 * any number of times; nothing kept from call to call, no clock, no random numbers, no communication.
 * Called for any node, on any rank, by the thread that called ftsort. Returns 0, or anything else to
 * refuse, which ends the run with `FTSORT_ERR_CALLBACK` on all ranks. Must not throw, longjmp, or call
 * ftsort or MPI, but for the functions of `ftsort_buffer`.
 */
typedef int (*ftsort_begin_fn)(void *user, int32_t node, struct ftsort_buffer *state);

/**
 * A node's part of a round, or of what comes before it. Valid during the callback only, with all that it
 * points to, which must not be written to.
 */
typedef struct ftsort_task {
  /**
   * `sizeof(ftsort_task)` of the library; later versions append fields.
   */
  size_t struct_size;
  /**
   * Whose part it is; where something is decided, the root of the subcube.
   */
  int32_t node;
  /**
   * `node` xor 2^`dimension`; -1 in rounds that exchange nothing.
   */
  int32_t partner;
  /**
   * Not 0: `node` is the greater of the two.
   */
  int32_t is_upper;
  /**
   * Not 0: `node` is the root of the subcube that shares something: its fault-free node with the
   * smallest number (2024 paper, Section 4.1). For `propose` and `decide`.
   */
  int32_t is_root;
  /**
   * How many nodes there are.
   */
  uint32_t nodes;
  /**
   * Which round, from 1 on, as in events and fault schedules.
   */
  uint32_t round;
  /**
   * Of how many.
   */
  uint32_t rounds;
  /**
   * Of the round, from 0 on; `FTSORT_NO_EXCHANGE`.
   */
  uint32_t dimension;
  /**
   * The node's state before the round; for `decide` nothing. Aligned to 64 bytes; not NULL, also if there
   * are none.
   */
  const void *state;
  /**
   * Its size.
   */
  size_t state_bytes;
  /**
   * What the node's subcube shared last, in this round or before; for `propose` and `decide`, before it.
   * Aligned as `state`.
   */
  const void *shared;
  /**
   * Its size; 0 before anything was shared.
   */
  size_t shared_bytes;
} ftsort_task;

/**
 * Says what a node contributes to what its subcube shares. Where there is no `decide`, only roots are
 * asked. The same rules as for `ftsort_begin_fn`.
 */
typedef int (*ftsort_propose_fn)(void *user,
                                 const struct ftsort_task *task,
                                 struct ftsort_buffer *proposal);

/**
 * What a node contributes to what its subcube shares. Valid during the callback only.
 */
typedef struct ftsort_proposal {
  /**
   * Whose.
   */
  int32_t node;
  /**
   * Not 0: the rank that is the node's home is dead, or there is none; its executor speaks for it.
   */
  int32_t is_faulty;
  /**
   * The bytes, aligned to 64; not NULL, also if there are none.
   */
  const void *data;
  /**
   * How many.
   */
  size_t bytes;
} ftsort_proposal;

/**
 * Makes of the proposals of all nodes of a subcube, in ascending order of node, what they share. The same
 * rules as for `ftsort_begin_fn`.
 */
typedef int (*ftsort_decide_fn)(void *user,
                                const struct ftsort_task *task,
                                const struct ftsort_proposal *proposals,
                                size_t count,
                                struct ftsort_buffer *shared);

/**
 * Says what a node sends to its partner. The same rules as for `ftsort_begin_fn`.
 */
typedef int (*ftsort_emit_fn)(void *user,
                              const struct ftsort_task *task,
                              struct ftsort_buffer *outbox);

/**
 * Makes a node's state after the round of its state before and of what its partner sent: `bytes` bytes
 * at `inbox`, aligned to 64, not NULL; none in rounds that exchange nothing. What is put into `next` is
 * the state; nothing put there is a state of no bytes. The same rules as for `ftsort_begin_fn`.
 */
typedef int (*ftsort_absorb_fn)(void *user,
                                const struct ftsort_task *task,
                                const void *inbox,
                                size_t bytes,
                                struct ftsort_buffer *next);

/**
 * An algorithm on the virtual hypercube. Start from `FTSORT_ROUNDS_INIT`; zero always means the default.
 * Later versions append fields. The same on all ranks, but for `user`. Borrowed for the call, with all
 * that it points to.
 */
typedef struct ftsort_rounds {
  /**
   * `sizeof(ftsort_rounds)`.
   */
  size_t struct_size;
  /**
   * The rounds, `round_count` of them. NULL: one for each dimension, from the highest down, as in the
   * papers; if there is a `propose`, in each of them the nodes that are to exchange from then on share
   * something (in the round along dimension s the subcubes of s + 1 dimensions), as in
   * HyperQuickSort.
   */
  const struct ftsort_round *plan;
  /**
   * How many rounds `plan` has; 0 if that is NULL.
   */
  size_t round_count;
  /**
   * Not 0: with no `plan`, the rounds go from the lowest dimension up.
   */
  int32_t ascending;
  /**
   * Not 0: `begin` makes every node's first state, and what ranks bring is not looked at: for inputs that
   * anybody can make or read again. Nothing is ever lost then: what too few copies are left of is
   * done again from the start.
   */
  int32_t begin_all;
  /**
   * The most bytes of a proposal, and of what is shared; 0: 4096. All ranks learn, and keep to the end,
   * what every subcube shares.
   */
  uint32_t share_limit;
  /**
   * See `ftsort_begin_fn`; NULL: a state of no bytes.
   */
  ftsort_begin_fn begin;
  /**
   * See `ftsort_propose_fn`; NULL: nothing is shared.
   */
  ftsort_propose_fn propose;
  /**
   * See `ftsort_decide_fn`; NULL: what the subcube's root proposes is shared.
   */
  ftsort_decide_fn decide;
  /**
   * See `ftsort_emit_fn`; NULL: a node sends all of its state, which costs no copy.
   */
  ftsort_emit_fn emit;
  /**
   * See `ftsort_absorb_fn`; not NULL.
   */
  ftsort_absorb_fn absorb;
  /**
   * Passed to the callbacks as it is; never read. What it points to is constant during the call.
   */
  void *user;
} ftsort_rounds;

/**
 * The state of one node. Borrowed from its result.
 */
typedef struct ftsort_state {
  /**
   * Whose state it is.
   */
  int32_t node;
  /**
   * The bytes, aligned to 64; not NULL, also if there are none.
   */
  const void *data;
  /**
   * How many.
   */
  size_t bytes;
} ftsort_state;

/**
 * Ranks to be simulated. Start from `FTSORT_SIMULATION_OPTIONS_INIT`; zero always means the default. Later versions
 * append fields. Borrowed for the call.
 */
typedef struct ftsort_simulation_options {
  /**
   * `sizeof(ftsort_simulation_options)`.
   */
  size_t struct_size;
  /**
   * Decides everything that chance decides: in what order ranks go on and messages come, who dies and
   * when. The same seed gives the same run.
   */
  uint64_t seed;
  /**
   * How many ranks there are; 0: 4. Up to 256.
   */
  uint32_t ranks;
  /**
   * How many of them die, at instants that the seed draws; fewer than there are.
   */
  uint32_t deaths;
  /**
   * One of `ftsort_store`: where states are kept. FTSORT_STORE_DIRECTORY is played in memory;
   * FTSORT_STORE_RELOAD has the states that ranks bring again.
   */
  int32_t store;
  /**
   * `FTSORT_STORE_MEMORY` only: copies beside the original. 0: one.
   */
  uint32_t replicas;
  /**
   * Not 0: with another store, too, the states that ranks bring can be had again, so that nothing is
   * ever lost.
   */
  int32_t reload;
  /**
   * Who dies in place of what the seed draws, as `ftsort_last_error(NULL)` tells of a run that went wrong:
   * `RANK@STEP`, several with commas between. NULL: what the seed draws.
   */
  const char *lose;
} ftsort_simulation_options;

/**
 * Merges two contributions, or what was merged of several, into `out` (see `ftsort_buffer_resize`).
 * Pure: the same bytes for the same bytes, on every rank. Called on any rank, by the thread that called
 * ftsort, and again for the same contributions after faults; never with a contribution of no bytes.
 * `low` and `high` are aligned to 8 at least. With `ordered` all of `low` is of smaller nodes than
 * `high`; else it must not matter which is which, nor what is merged first. Returns 0, or anything else
 * to refuse, which ends the call with `FTSORT_ERR_CALLBACK`. Must not throw, longjmp, or call ftsort or
 * MPI, but for `ftsort_buffer_resize`.
 */
typedef int (*ftsort_tree_merge_fn)(void *user,
                                    const void *low,
                                    size_t low_bytes,
                                    const void *high,
                                    size_t high_bytes,
                                    struct ftsort_buffer *out);

/**
 * What a tree is to be like. Start from `FTSORT_TREE_OPTIONS_INIT`; zero always means the default. Later
 * versions append fields. The same on all ranks, but for `user`. Borrowed for the call, with all that it
 * points to.
 */
typedef struct ftsort_tree_options {
  /**
   * `sizeof(ftsort_tree_options)`.
   */
  size_t struct_size;
  /**
   * Not 0: the tree leads to the node of rank `sink`. 0: FIND_TREE chooses (1996 paper, Section 3.1):
   * a node with as few faulty links as any; without faulty links the lowest survivor's.
   */
  int32_t has_sink;
  /**
   * A rank, dead or alive; its cover takes its part if it is dead.
   */
  int32_t sink;
  /**
   * One of `ftsort_tree_op`. `ftsort_tree_merge` only.
   */
  int32_t operation;
  /**
   * One of `ftsort_key`, a number. For the operations on arrays of numbers only.
   */
  int32_t key;
  /**
   * Not 0: only contributions of neighbouring nodes are merged, in their order; what has a gap
   * between stays apart on its way, and more memory is used at the sink. For a `merge` for which order
   * matters, and for sorted lists in which records of equal keys must stay in the order of ranks.
   * Concatenating is always so.
   */
  int32_t ordered;
  /**
   * Not 0: a node that cannot send to its parent always takes a way around; 0: it gives what it has to
   * a neighbour that can pass it on, if there is one (1996 paper, Section 3.2; but to one, not in parts
   * to all).
   */
  int32_t reroute;
  /**
   * Not 0: before the call each link is tested with timed letters, and those whose tests took longer
   * than what is usual, and than so many milliseconds, three times in a row, are taken for faulty in
   * this call (1996 paper, Figure 7). Sees links that are slow; a link that carries nothing at all
   * it cannot tell from a slow rank, and waits.
   */
  uint32_t detect_ms;
  /**
   * How many pairs of ranks `links` has.
   */
  size_t link_count;
  /**
   * The faulty links: pairs of ranks, two numbers each, that are not to send to each other on the tree's
   * way. The nodes of the dead go with their covers. May be NULL if `link_count` is 0.
   */
  const int32_t *links;
  /**
   * What is in sorted lists; `FTSORT_TREE_SORTED` only.
   */
  const struct ftsort_record *record;
  /**
   * See `ftsort_tree_merge_fn`; `FTSORT_TREE_CALL` only.
   */
  ftsort_tree_merge_fn merge;
  /**
   * Passed to `merge` as it is; never read.
   */
  void *user;
} ftsort_tree_options;

/**
 * Takes the next `count` records of a sorted result. Called on the rank that gets them, by the thread that
 * called ftsort; `records` are aligned to 8 at least, and valid during the callback. Returns 0, or
 * anything else to refuse, which ends the call with `FTSORT_ERR_CALLBACK`. Must not throw, longjmp, or
 * call ftsort with this group.
 */
typedef int (*ftsort_consume_fn)(void *user, const void *records, size_t count);

/**
 * The test procedure: some work as the application does it, in the time that it takes where all is
 * well. Gives a number that is the same on all ranks; any other one than the tester's own fails the test.
 * Called on the monitor's thread, and on the thread that calls ftsort; must not call MPI or ftsort, throw,
 * or longjmp.
 */
typedef uint64_t (*ftsort_test_fn)(void *user);

/**
 * How ranks are watched. Start from `FTSORT_MONITOR_OPTIONS_INIT`; zero always means the default. Later versions
 * append fields. The same on all ranks, but for `test` and `user`. Borrowed for the call.
 */
typedef struct ftsort_monitor_options {
  /**
   * `sizeof(ftsort_monitor_options)`.
   */
  size_t struct_size;
  /**
   * One of `ftsort_monitor_mode`.
   */
  int32_t mode;
  /**
   * One of `ftsort_monitor_assignment`; nothing in the foreground.
   */
  int32_t assignment;
  /**
   * Milliseconds between tests; 0: 1000.
   */
  uint32_t interval_ms;
  /**
   * After how many good tests in a row a rank may come back; 0: 5 (the paper's zeta).
   */
  uint32_t zeta;
  /**
   * The weight of what was in the means of Algorithm 1, from 0 to below 1; 0: 0.9.
   */
  double alpha;
  /**
   * How many deviations a timeout is above the mean; 0: 4.
   */
  double beta;
  /**
   * A reply is late after so many times the timeout ...; 0: 2.5.
   */
  double factor;
  /**
   * ... and so many milliseconds more. In the foreground a fraction of the median instead, as 1000.
   */
  double plus_ms;
  /**
   * The threshold of a rank's first tests, in milliseconds; 0: 8000. In the foreground multiples of the
   * median, as 1000.
   */
  double first_ms;
  /**
   * Above 0: a reply is late by phi instead, the negative decimal logarithm of the probability that one
   * takes even longer; up to 300.
   */
  double phi;
  /**
   * Not 0: a tester that sees most of its peers late at once, or was itself woken late, takes itself for
   * the slow one and reports nothing.
   */
  int32_t self_doubt;
  /**
   * Not 0: late replies do not enter the means, so that testers do not get used to a slow rank.
   */
  int32_t unforgiving;
  /**
   * The test procedure; NULL: the paper's, primes up to 1000 (and see `FTSORT_MONITOR_FOREGROUND`).
   */
  ftsort_test_fn test;
  /**
   * Passed to `test` as it is; never read.
   */
  void *user;
  /**
   * One of `ftsort_monitor_sharing`.
   */
  int32_t sharing;
  /**
   * Not 0: a rank is left out only where that is expected to save time, by how slow it has been of late
   * (as `FTSORT_SHARING_WEIGHTS` knows it): its own part of the rounds to come against its cover's two, and
   * one more round for moving its blocks. So never one that is at most twice as slow as its cover. Who is
   * out comes back as without this. Nothing with `FTSORT_SHARING_WEIGHTS`.
   */
  int32_t gain;
} ftsort_monitor_options;

/**
 * What one rank's monitor knows of another rank. Later versions append fields.
 */
typedef struct ftsort_monitor_view {
  /**
   * `sizeof(ftsort_monitor_view)`, set by the caller.
   */
  size_t struct_size;
  /**
   * 1: the rank is in the Dynamic Group of Recommended Processes; 0: it is not.
   */
  int32_t recommended;
  /**
   * Events so far: even for a recommended rank, odd for another one.
   */
  uint32_t counter;
  /**
   * Good tests in a row, by this rank, since the rank left the group.
   */
  uint32_t good_in_row;
  /**
   * Seconds until its last reply to this rank; below 0: there was none. In the foreground this, and all
   * times that follow, are multiples of the median.
   */
  double last_reply;
  /**
   * Algorithm 1's mean of these.
   */
  double mean;
  /**
   * Algorithm 1's variance.
   */
  double variance;
  /**
   * Algorithm 1's timeout.
   */
  double timeout;
  /**
   * How long the next reply may take.
   */
  double threshold;
  /**
   * How suspicious the last test was, from 0 on.
   */
  double phi;
  /**
   * Its share of the work in proportion to that of a rank at full speed, from 0 to 1, as all ranks have
   * agreed on at a commit; 1 without `FTSORT_SHARING_WEIGHTS`.
   */
  double weight;
} ftsort_monitor_view;

/**
 * Figures of the last `ftsort_run` or `ftsort_rounds_run` on this rank. Later versions append fields.
 */
typedef struct ftsort_stats {
  /**
   * `sizeof(ftsort_stats)`, set by the caller.
   */
  size_t struct_size;
  /**
   * Seconds from the call to the result.
   */
  double total_seconds;
  /**
   * Seconds of local sorting.
   */
  double sort_seconds;
  /**
   * Seconds of deciding on pivots, splitting, and exchanging with neighbours; of an algorithm of the
   * caller's, of sharing, exchanging, and its callbacks.
   */
  double exchange_seconds;
  /**
   * Seconds of making the result out of sorted runs.
   */
  double merge_seconds;
  /**
   * Seconds of keeping versions in the store, copies to other ranks included.
   */
  double store_seconds;
  /**
   * Seconds of agreeing at the ends of rounds, which includes waiting for slower ranks.
   */
  double commit_seconds;
  /**
   * Seconds of agreeing on the dead and getting lost blocks back.
   */
  double repair_seconds;
  /**
   * Bytes sent to other ranks.
   */
  uint64_t bytes_sent;
  /**
   * Bytes put into the store on this rank.
   */
  uint64_t bytes_stored;
  /**
   * Rounds committed, loading and making the result included.
   */
  uint64_t rounds;
  /**
   * Times that a round started again.
   */
  uint64_t rounds_replayed;
  /**
   * Ranks found dead.
   */
  uint64_t faults;
  /**
   * The most bytes that ftsort's blocks and messages took at once in this process, the copy of
   * the input and the result included.
   */
  uint64_t peak_bytes;
  /**
   * One of `ftsort_algorithm`: which one sorted; -1: it was `ftsort_rounds_run`.
   */
  int32_t algorithm;
  /**
   * Times that data were found changed.
   */
  uint64_t corruptions;
  /**
   * Times that data of this rank were changed because `ftsort_config.faults` says so.
   */
  uint64_t injected;
} ftsort_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * One English sentence for a status. [L]
 *
 * \param[in] status any number; an unknown one gives "unknown status".
 * \return a static, NUL-terminated string; never NULL. Any thread may call this at any time.
 */
const char *ftsort_status_text(ftsort_status status);

/**
 * The record of one of MPI's predefined types: `MPI_INT`, `MPI_DOUBLE`, ... are plain numbers;
 * `MPI_DOUBLE_INT` and the other pairs of a number and an index are sorted by the number. [L]
 *
 * \param[in] type a predefined type of C or Fortran; MPI must be initialised.
 * \param[out] out the record, ascending; `descending` and `stable` may be set afterwards.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for a type that is not predefined or whose elements have
 * no order (complex numbers, `long double`), or a NULL `out`; `FTSORT_ERR_MPI`.
 * `ftsort_last_error(NULL)` has the text.
 */
ftsort_status ftsort_record_of_type(MPI_Datatype type,
                                    struct ftsort_record *out);

/**
 * Makes `buffer` hold `bytes` bytes, all zero, and gives their address. [L]
 *
 * \param[in,out] buffer what a callback was given to fill; NULL gives NULL.
 * \param[in] bytes the new size; 0 is allowed.
 * \return the address, aligned to 64 bytes, valid until the next call with this buffer or the end
 * of the callback; NULL if there is no memory.
 */
void *ftsort_buffer_resize(struct ftsort_buffer *buffer, size_t bytes);

/**
 * Adds bytes at the end of `buffer`. [L]
 *
 * \param[in,out] buffer what a callback was given to fill; NULL gives 1.
 * \param[in] data copied; may be NULL if `bytes` is 0. Not from this buffer itself.
 * \param[in] bytes how many.
 * \return 0; 1 if there is no memory, and the buffer is as it was. So a callback can return it.
 */
int ftsort_buffer_append(struct ftsort_buffer *buffer, const void *data, size_t bytes);

/**
 * In an `emit` callback: what is sent is a part of the node's state, as it is, without a copy. [L]
 *
 * \param[in,out] outbox what the callback was given to fill; what it held is forgotten.
 * \param[in] offset where the part starts in the state, in bytes.
 * \param[in] bytes how long it is.
 * \return 0; 1 for NULL, where the part reaches beyond the state, and in other callbacks. So a callback
 * can return it.
 */
int ftsort_buffer_pass(struct ftsort_buffer *outbox,
                       size_t offset,
                       size_t bytes);

/**
 * In an `absorb` callback: the node's next state is the message that came, to be changed in place. Saves a
 * copy, and as much memory, where nobody else has the message. [L]
 *
 * \param[in,out] next what the callback was given to fill; what it held is forgotten.
 * \param[out] bytes the message's size; may be NULL.
 * \return its address, aligned to 64 bytes, valid as for `ftsort_buffer_resize`; what `inbox` points to
 * may change with it. NULL for NULL, if there is no memory, and in other callbacks.
 */
void *ftsort_buffer_reuse(struct ftsort_buffer *next,
                          size_t *bytes);

/**
 * Sets what surviving needs and MPI reads when it starts: call it before `MPI_Init`, while the
 * process has one thread. Sets environment variables of Open MPI that are not set yet, and ignores
 * SIGPIPE if its action is the default (a TCP connection to a dead process raises it). Optional: the
 * `ftsort-mpirun` wrapper and the MCA parameter file that come with ftsort do the same from outside.
 * Other MPI libraries ignore these variables. No other function of ftsort touches the environment or
 * a signal's action. [L]
 *
 * \return `FTSORT_OK`; `FTSORT_ERR_STATE` if MPI is initialised already, and nothing was set.
 */
ftsort_status ftsort_prepare(void);

/**
 * Leaves the process: instead of `ftsort_free`, `MPI_Finalize` and `exit`. [C]
 *
 * After faults survivors can hang in `MPI_Finalize`, waiting for the dead. This function waits for
 * the other survivors; if nobody has died (and Open MPI's heartbeat detector has no thread, with which
 * `MPI_Finalize` hangs even then), it frees the group, calls `MPI_Finalize` and `exit`;
 * else it flushes the C streams and ends the process with `_exit`, without `MPI_Finalize` and
 * without `atexit` handlers. `mpirun`'s own exit status proves nothing either way: with
 * `--with-ft ulfm` it can be 0 although ranks died, so leave a mark of success of your own.
 * With `ftsort_config.trace` the lowest survivor merges what all ranks have written.
 *
 * \param[in] group a live group, even a poisoned one; it is gone afterwards.
 * \param[in] exit_code the status of the process.
 * \return does not return, but for `FTSORT_ERR_ARGUMENT` if `group` is NULL.
 */
ftsort_status ftsort_leave(struct ftsort *group,
                           int exit_code);

/**
 * Makes a group of the ranks of `comm`. [C]
 *
 * The group communicates on a private communicator. `comm` stays the caller's; it is not kept and
 * its error handler is not touched. It may already contain failures: the dead count as faulty from
 * the start, and only the survivors call this function. Faults during this call are survived only
 * in part: MPI libraries crash when a process dies while a communicator is made.
 *
 * \param[in] comm an intra-communicator. A rank of the group is a rank in it, for ever.
 * \param[in] config borrowed for the call; NULL: all defaults.
 * \param[out] out the group, to be freed with `ftsort_free`; NULL after a failure.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` or `FTSORT_ERR_PEER_ARGUMENT`;
 * `FTSORT_ERR_NO_ULFM`; `FTSORT_ERR_STORE` where the store directory cannot be used;
 * `FTSORT_ERR_MEMORY`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`. `ftsort_last_error(NULL)` has the
 * text. Where `out` is NULL or `comm` is `MPI_COMM_NULL` the call fails on this rank at once, and
 * the others wait for it.
 */
ftsort_status ftsort_init(MPI_Comm comm, const struct ftsort_config *config, struct ftsort **out);

/**
 * Finds new faults: the papers' FaultDetection. Afterwards all survivors know the same faulty
 * ranks, and every rank keeps its identity; `ftsort_is_failed`, `ftsort_executor` and
 * `ftsort_partner` answer by it. Needs no sort: a loop of the caller's own calls it each round. Where
 * such a loop keeps states (`ftsort_store_put`), a round of it begins here: what was put and not
 * committed is forgotten, and the states of the dead come to the ranks that cover them. [C]
 *
 * By default the survivors agree and acknowledge on one communicator for life. With
 * `FTSORT_REPAIR_SHRINK`: barrier, agree, revoke, acknowledge, shrink (2024 paper, Section 5.1).
 *
 * \param[in,out] group a live group.
 * \param[out] new_faults how many ranks this call found dead; those that `ftsort_run` found are in
 * its statistics and events. May be NULL.
 * \return `FTSORT_OK`, whether there are new faults or not; `FTSORT_ERR_STATE`;
 * `FTSORT_ERR_ARGUMENT` for a NULL group; `FTSORT_ERR_DATA_LOST` where states that were kept are nowhere
 * (the others are in place, and `ftsort_lost_ranks` says whose are lost), `FTSORT_ERR_MEMORY` or
 * `FTSORT_ERR_STORE` where they could not be brought (the next call tries again);
 * `FTSORT_ERR_EXCLUDED`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_fault_check(struct ftsort *group,
                                 size_t *new_faults);

/**
 * Agrees on a number: afterwards all survivors hold the bitwise AND of what they brought, and know
 * the same faulty ranks. For decisions of the caller's own, such as whether everybody has written
 * its part. Includes `ftsort_fault_check`. [C]
 *
 * \param[in,out] group a live group.
 * \param[in,out] flags this rank's number; then the agreed one. What ranks brought that died
 * meanwhile may be in it or not, but it is so on all survivors alike.
 * \param[out] new_faults how many ranks this call found dead; may be NULL.
 * \return `FTSORT_OK`; `FTSORT_ERR_STATE`; `FTSORT_ERR_ARGUMENT` for NULL; `FTSORT_ERR_MPI`;
 * `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_agree(struct ftsort *group, uint32_t *flags, size_t *new_faults);

/**
 * Kills this process with SIGKILL if the fault schedule says that this rank dies at the start of
 * `round`: the papers' FaultInject, for a loop of the caller's own. (In `ftsort_run` the schedule
 * is followed by itself.) [L]
 *
 * \param[in] group a live group.
 * \param[in] round the caller's round; scenarios draw from the rounds 0 to log2(N) + 1.
 * \return `FTSORT_OK` if this rank lives on; `FTSORT_ERR_ARGUMENT`, `FTSORT_ERR_STATE`.
 */
ftsort_status ftsort_inject(struct ftsort *group, uint32_t round);

/**
 * Lends a communicator of the survivors, in ascending order of rank, with MPI_ERRORS_RETURN. Made
 * anew only if faults are new since the last call. Communicator creation is what MPI libraries
 * survive worst: call it at a quiet point, and not more often than needed. [C]
 *
 * \param[in,out] group a live group.
 * \param[out] out the communicator; it stays the group's and is valid until the next
 * `ftsort_comm` that finds new faults, or `ftsort_free`. Do not free it.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MPI`,
 * `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_comm(struct ftsort *group, MPI_Comm *out);

/**
 * Frees a group. Not collective, but every survivor does it, before `MPI_Finalize`. Results may
 * outlive their group. With `ftsort_config.trace` the lowest survivor merges what the ranks have
 * written by then; the others may still be writing. [L]
 *
 * \param[in] group a group; NULL is a no-op. It must not be used again.
 */
void ftsort_free(struct ftsort *group);

/**
 * Why the last failing call with this group failed: names the argument and the value, the file, or
 * the rank. [L]
 *
 * \param[in] group a group; NULL: the last failing `ftsort_init` or `ftsort_record_of_type` of
 * this thread.
 * \return a NUL-terminated string, valid until the next call with this group (or, for NULL, the
 * next of these calls of this thread); empty if nothing failed; never NULL.
 */
const char *ftsort_last_error(const struct ftsort *group);

/**
 * Sorts the records of all ranks together. [C]
 *
 * The result is the same multiset in ascending order: it goes on from block to block in ascending
 * order of node, and each survivor gets the blocks of the nodes that it executes: its own, and
 * those of the nodes that it covers. Ranks may die at any moment, up to all but one; what is lost
 * then depends on the store (see `ftsort_store`): `FTSORT_ERR_DATA_LOST` on every survivor, and
 * `ftsort_lost_ranks` says whose. The group stays usable, after any status but `FTSORT_ERR_MPI` and
 * `FTSORT_ERR_INTERNAL`. A rank that was known to be dead before the call has no input: the
 * survivors divide the work anew before they call again. Once this function has returned `FTSORT_OK`
 * the result is the caller's to look after: a rank that dies afterwards takes its blocks with it.
 *
 * \param[in,out] group a live group.
 * \param[in] record what is sorted; borrowed for the call.
 * \param[in] input this rank's records; not changed; any alignment. NULL if `count` is 0. They must stay what
 * they are until the function returns: after a late fault they are read again.
 * \param[in] count how many records; may differ between ranks.
 * \param[out] out the result, to be freed with `ftsort_result_free`; NULL after a failure.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (also where `record` is not the same on all ranks),
 * `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`,
 * `FTSORT_ERR_CALLBACK` (`reload` refused, or `compare` contradicts itself), `FTSORT_ERR_DATA_LOST`,
 * `FTSORT_ERR_CORRUPT`, `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_run(struct ftsort *group,
                         const struct ftsort_record *record,
                         const void *input,
                         size_t count,
                         struct ftsort_result **out);

/**
 * How many blocks this rank holds. [L]
 *
 * \param[in] result a result; NULL has none.
 */
size_t ftsort_result_count(const struct ftsort_result *result);

/**
 * One block of this rank's. [L]
 *
 * \param[in] result a live result.
 * \param[in] index below `ftsort_result_count`; blocks are in ascending order of node.
 * \param[out] out the block; its data live as long as the result.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL or an index that is too great.
 */
ftsort_status ftsort_result_block(const struct ftsort_result *result,
                                  size_t index,
                                  struct ftsort_block *out);

/**
 * How many records the whole result has, over all ranks. [L]
 *
 * \param[in] result a result; NULL has none.
 */
uint64_t ftsort_result_total(const struct ftsort_result *result);

/**
 * Frees a result and the blocks in it. [L]
 *
 * \param[in] result a result; NULL is a no-op. It must not be used again.
 */
void ftsort_result_free(struct ftsort_result *result);

/**
 * This process's rank: for ever the one in the communicator given to `ftsort_init`. -1 for NULL. [L]
 */
int32_t ftsort_rank(const struct ftsort *group);

/**
 * How many ranks there were at `ftsort_init`, the dead included. 0 for NULL. [L]
 */
int32_t ftsort_ranks(const struct ftsort *group);

/**
 * d: the virtual hypercube has 2^d nodes, the least power of two that is at least the number of
 * ranks. 0 for NULL. [L]
 */
uint32_t ftsort_dimension(const struct ftsort *group);

/**
 * 1 if node `rank` is faulty, that is: the rank is dead, or there is no such rank; else 0. [L]
 */
int ftsort_is_failed(const struct ftsort *group, int32_t rank);

/**
 * The rank that executes `node`: itself if it is fault-free, else its cover, the first fault-free
 * node of c(node,1), c(node,2), ... (2024 paper, Section 3). -1 if the cube has no such node. [L]
 */
int32_t ftsort_executor(const struct ftsort *group, int32_t node);

/**
 * The papers' partner of `node` in dimension `s` (from 1 to d): the first fault-free node of
 * c(node,s). -1 if there is none, or the cube has no such node or dimension. [L]
 */
int32_t ftsort_partner(const struct ftsort *group, int32_t node, uint32_t s);

/**
 * c(node,s): the nodes of the s-th cluster of a node, in the order in which it turns to them (2024
 * paper, Table 1). Depends on no group. [L]
 *
 * \param[in] node from 0 on.
 * \param[in] s from 1 to 31.
 * \param[out] out receives the first `capacity` nodes; may be NULL if `capacity` is 0.
 * \return how many nodes the cluster has, 2^(s-1); 0 for a node or an s that cannot be.
 */
size_t ftsort_cluster(int32_t node, uint32_t s, int32_t *out, size_t capacity);

/**
 * The rank of `rank` in the communicator of the last `ftsort_comm`; `MPI_PROC_NULL` if it is not in
 * it, or there is none yet. [L]
 */
int ftsort_comm_rank(const struct ftsort *group, int32_t rank);

/**
 * Whose data the last `ftsort_run`, `ftsort_rounds_run`, `ftsort_fault_check`, `ftsort_store_commit` or
 * call that takes a tree could not get back: the ranks behind its `FTSORT_ERR_DATA_LOST`, the same on
 * all survivors. [L]
 *
 * \param[in] group a live group; NULL has none.
 * \param[out] ranks filled with up to `capacity` ranks, ascending; may be NULL if `capacity` is 0.
 * \param[in] capacity how many fit.
 * \return how many there are, which may be more than `capacity`; 0 if the last of
 * these calls lost nothing.
 */
size_t ftsort_lost_ranks(const struct ftsort *group,
                         int32_t *ranks,
                         size_t capacity);

/**
 * Is a result in order, from block to block, and does it consist of exactly the records that went in?
 * Looks at the records themselves, whoever made the result and whatever was checked meanwhile. [C]
 *
 * Order is looked at for every pair of neighbours. The records are compared with the inputs as
 * multisets, by digests with a fresh key: a difference is missed with a probability of n / 2^59 at most
 * for n records. Records with equal keys may be in any order. If no rank gives an input, only the order
 * is looked at; after faults the inputs of the dead are missing unless somebody gives them. (McMillin
 * and Ni 1989, Theorem 1; the digest is our own, see docs/reliable.md.)
 *
 * \param[in,out] group a live group.
 * \param[in] record what was sorted; borrowed for the call; the same on all ranks.
 * \param[in] result this rank's part of the result; borrowed for the call; NULL: it has none.
 * \param[in] input the records that this rank brought to the sort, in any order; NULL: none.
 * \param[in] count how many records `input` has.
 * \param[out] violations in how many places it is wrong, the same on all survivors; 0: it is right.
 * \return `FTSORT_OK`, right or wrong; `FTSORT_ERR_ARGUMENT` (also where `record` is not the same on
 * all ranks, or is not what the result has), `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`,
 * `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_verify(struct ftsort *group,
                            const struct ftsort_record *record,
                            const struct ftsort_result *result,
                            const void *input,
                            size_t count,
                            uint64_t *violations);

/**
 * As `ftsort_verify`, for an array of which every rank holds a part, in the order of ranks, whoever
 * sorted it. [C]
 *
 * \param[in,out] group a live group.
 * \param[in] record what was sorted; borrowed for the call; the same on all ranks.
 * \param[in] output this rank's part; borrowed for the call; aligned as an array of such records is;
 * NULL if `output_count` is 0.
 * \param[in] output_count how many records it has.
 * \param[in] input, count as for `ftsort_verify`.
 * \param[out] violations as for `ftsort_verify`.
 * \return as `ftsort_verify`.
 */
ftsort_status ftsort_verify_array(struct ftsort *group,
                                  const struct ftsort_record *record,
                                  const void *output,
                                  size_t output_count,
                                  const void *input,
                                  size_t count,
                                  uint64_t *violations);

/**
 * Puts the state of a node that this rank executes (its own, or one that it covers) aside for the next
 * `ftsort_store_commit`: the papers' checkpoint, but that nothing counts before all survivors have
 * agreed on it. States are bytes of any size, which may differ from node to node and from round to
 * round; where they go is `ftsort_config.store`, and what they survive is said there. They are apart
 * from what `ftsort_run` keeps. [L]
 *
 * \param[in,out] group a live group.
 * \param[in] node with `ftsort_executor(group, node) == ftsort_rank(group)`.
 * \param[in] state copied; NULL if `bytes` is 0.
 * \param[in] bytes its size.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a node that another rank executes;
 * `FTSORT_ERR_MEMORY`; `FTSORT_ERR_STATE`.
 */
ftsort_status ftsort_store_put(struct ftsort *group,
                               int32_t node,
                               const void *state,
                               size_t bytes);

/**
 * Gives the committed state of a node that this rank executes: the papers' readCheckpoint. After a
 * fault the states of the nodes that this rank covers from then on are here as soon as
 * `ftsort_fault_check` or `ftsort_store_commit` has returned. [L]
 *
 * \param[in,out] group a live group.
 * \param[in] node with `ftsort_executor(group, node) == ftsort_rank(group)`.
 * \param[out] state the bytes, aligned to 64; valid until the next `ftsort_fault_check`,
 * `ftsort_store_commit` or `ftsort_store_clear`, or the group's end. NULL if nothing was ever committed
 * for this node, or what was is lost.
 * \param[out] bytes its size; may be NULL.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a node that another rank executes;
 * `FTSORT_ERR_STATE`.
 */
ftsort_status ftsort_store_get(struct ftsort *group,
                               int32_t node,
                               const void **state,
                               size_t *bytes);

/**
 * Ends a round of a loop of the caller's own: if all survivors say that they are done, and nobody has
 * been found dead since the round began (with the last `ftsort_fault_check` or
 * `ftsort_store_commit`), what they have put becomes the committed states of the nodes, all at once.
 * Nodes for which nothing was put keep theirs. Otherwise what was put is forgotten, the states of the
 * dead are brought to the ranks that cover them, and the round is to be done again: the papers'
 * "if F = F' then d = d - 1". Either way the next round begins. [C]
 *
 * \param[in,out] group a live group.
 * \param[in] done not 0: this rank did its part of the round. 0 on any rank: the round is not
 * committed.
 * \param[out] committed 1 or 0, the same on all survivors.
 * \return `FTSORT_OK`, committed or not; `FTSORT_ERR_ARGUMENT` for NULL (also on the other ranks, as
 * `FTSORT_ERR_PEER_ARGUMENT`, if it is `committed`), `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY` or
 * `FTSORT_ERR_STORE` where a rank could not keep its states, and the round is not committed;
 * `FTSORT_ERR_DATA_LOST`: also not, and states of dead ranks that `ftsort_lost_ranks` names are nowhere,
 * all others being in place; `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_store_commit(struct ftsort *group,
                                  int done,
                                  int *committed);

/**
 * Forgets all states that were kept, and removes their files. For the end of a loop whose group goes
 * on, or ends with `ftsort_free`; `ftsort_leave` does it by itself. [C]
 *
 * \param[in,out] group a live group.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, `FTSORT_ERR_STATE`, `FTSORT_ERR_EXCLUDED`,
 * `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_store_clear(struct ftsort *group);

/**
 * Runs an algorithm of the caller's on the virtual hypercube, fault-tolerantly. [C]
 *
 * Each rank brings the state of its own node. Then, round after round, the algorithm's callbacks are called
 * for every node, on the rank that executes it, and ftsort moves what they send, keeps every round's states
 * as `ftsort_config.store` says (FTSORT_STORE_RELOAD: the states that ranks brought, from which all is done
 * again), commits the round by an agreement, and after faults gets the states of the dead back and plays
 * the round again: as `ftsort_run` does, with the same events, statistics, fault schedules, timeouts and
 * limits. In fault schedules round 0 loads, and rounds 1 to R are the caller's. Any number of ranks, not
 * only a power of two. (The API that the 2024 paper leaves to future work in Section 6.)
 *
 * Put all rounds of an algorithm into one call: between calls nothing is kept. Once this function has
 * returned `FTSORT_OK` the states are the caller's to look after, as the result of `ftsort_run`.
 *
 * \param[in,out] group a live group.
 * \param[in] rounds the algorithm; borrowed for the call.
 * \param[in] state the state of this rank's node before the first round; copied; any alignment. NULL if
 * `bytes` is 0. With `rounds.begin_all` not looked at.
 * \param[in] bytes its size; may differ between ranks.
 * \param[out] out the states of the nodes that this rank executes in the end, to be freed with
 * `ftsort_rounds_result_free`; NULL after a failure.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (also where `rounds` is not the same on all ranks),
 * `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`,
 * `FTSORT_ERR_CALLBACK` (a callback or `reload` refused, shared too much, or is found not to be pure: the
 * text names it, the node and the round), `FTSORT_ERR_DATA_LOST`, `FTSORT_ERR_CORRUPT`,
 * `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_rounds_run(struct ftsort *group,
                                const struct ftsort_rounds *rounds,
                                const void *state,
                                size_t bytes,
                                struct ftsort_rounds_result **out);

/**
 * How many states this rank has. [L]
 *
 * \param[in] result a result; NULL has none.
 */
size_t ftsort_rounds_result_states(const struct ftsort_rounds_result *result);

/**
 * One state of this rank's. [L]
 *
 * \param[in] result a live result.
 * \param[in] index below `ftsort_rounds_result_states`; states are in ascending order of node.
 * \param[out] out the state; its data live as long as the result.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL or an index that is too great.
 */
ftsort_status ftsort_rounds_result_state(const struct ftsort_rounds_result *result,
                                         size_t index,
                                         struct ftsort_state *out);

/**
 * Frees a result and the states in it. [L]
 *
 * \param[in] result a result; NULL is a no-op. It must not be used again.
 */
void ftsort_rounds_result_free(struct ftsort_rounds_result *result);

/**
 * Runs an algorithm of the caller's on simulated ranks that die, in this process: to test fault tolerance
 * without MPI, in milliseconds, with thousands of seeds. The same engine as that of `ftsort_rounds_run`; all
 * callbacks are called twice to see whether they are pure (`FTSORT_CHECK_PURITY`), on stacks of 8 MiB. MPI
 * need not be initialised, and is not called. [L]
 *
 * \param[in] rounds the algorithm; borrowed for the call.
 * \param[in] simulation borrowed for the call; NULL: all defaults.
 * \param[in] states what the ranks bring, in their order; entries may be NULL where `bytes` is 0. With
 * `rounds.begin_all` not looked at.
 * \param[in] bytes the sizes of these.
 * \param[out] out the states of all nodes, as the survivors have them in the end, to be freed with
 * `ftsort_rounds_result_free`; NULL after a failure. A rank that dies after the end takes its states along:
 * those nodes are missing.
 * \return what the survivors return: `FTSORT_OK`, `FTSORT_ERR_DATA_LOST` where more died at once than the
 * store holds copies, or one before what it brought was kept, `FTSORT_ERR_CALLBACK` and so on; and
 * `FTSORT_ERR_ARGUMENT`; `FTSORT_ERR_STATE` if the library was built without simulation;
 * `FTSORT_ERR_INTERNAL` if ranks hang, or differ. `ftsort_last_error(NULL)` has the text, and who died when.
 */
ftsort_status ftsort_rounds_simulate(const struct ftsort_rounds *rounds,
                                     const struct ftsort_simulation_options *simulation,
                                     const void *const *states,
                                     const size_t *bytes,
                                     struct ftsort_rounds_result **out);

/**
 * Brings what all ranks contribute to one rank, merged on its way along a tree around faulty links
 * (Leu and Kuo 1996, Sections 3.1 and 3.2, FIND_TREE and FTTC). [C]
 *
 * Survives faults at any moment: every contribution is first kept as `ftsort_config.store` says (as
 * states are; FTSORT_STORE_RELOAD keeps nothing), and after a fault the survivors choose a tree anew and
 * begin again, with the contributions of the dead. A rank that dies before its contribution is kept
 * takes it along: `FTSORT_ERR_DATA_LOST`, `ftsort_lost_ranks` says who it was, and a second call goes
 * without it. A rank that was known to be dead before the call contributes nothing. All is kept and
 * agreed on as for any other call, over any link: `options.links` is about the tree. In fault schedules
 * round 1 keeps contributions, and round 2 carries them.
 *
 * \param[in,out] group a live group.
 * \param[in] options borrowed for the call; NULL: all defaults, which concatenate.
 * \param[in] state this rank's contribution; copied; any alignment. NULL if `bytes` is 0.
 * \param[in] bytes its size. 0: nothing is contributed, and nothing merged with it.
 * \param[out] out on the rank that executes the tree's sink (`ftsort_tree_holder`) the result, to be freed
 * with `ftsort_tree_result_free`; NULL on all others, and after a failure.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where the options are not the same, where
 * `options.links` cuts somebody off from the sink, whom the text names; with arrays of other lengths on
 * the rank that met them, and `FTSORT_ERR_PEER_ARGUMENT` on the others), `FTSORT_ERR_PEER_ARGUMENT`;
 * `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut somebody off;
 * `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`, `FTSORT_ERR_CALLBACK`, `FTSORT_ERR_DATA_LOST`,
 * `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_tree_merge(struct ftsort *group,
                                const struct ftsort_tree_options *options,
                                const void *state,
                                size_t bytes,
                                struct ftsort_tree_result **out);

/**
 * Tells all ranks what `root` has, down a tree around faulty links. [C]
 *
 * Survives faults at any moment, as `ftsort_tree_merge` does; `root` may die as soon as its bytes are
 * kept. In fault schedules round 1 keeps them, and round 2 carries them.
 *
 * \param[in,out] group a live group.
 * \param[in] options borrowed for the call; NULL: all defaults. The sink and the operation are not
 * looked at, but are the same on all ranks.
 * \param[in] root a rank that is alive; the same on all ranks.
 * \param[in,out] buffer on `root` what is told; on the others it is written to, and after a failure it
 * is as it was. NULL if `bytes` is 0.
 * \param[in] bytes its size, the same on all ranks.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where `root` was known to be dead, where the
 * options or `bytes` are not the same, or where `options.links` cuts somebody off, whom the text names),
 * `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut
 * somebody off; `FTSORT_ERR_DATA_LOST` where `root` died before its bytes were kept;
 * `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`, `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`,
 * `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_tree_broadcast(struct ftsort *group,
                                    const struct ftsort_tree_options *options,
                                    int32_t root,
                                    void *buffer,
                                    size_t bytes);

/**
 * What a tree has brought to this rank. [L]
 *
 * \param[in] result a result; NULL has none.
 * \param[out] bytes its size; may be NULL.
 * \return the bytes, aligned to 8 at least, valid as long as the result; not NULL, also if there are
 * none, but NULL for NULL.
 */
const void *ftsort_tree_result_data(const struct ftsort_tree_result *result,
                                    size_t *bytes);

/**
 * Frees a result. [L]
 *
 * \param[in] result a result; NULL is a no-op. It must not be used again.
 */
void ftsort_tree_result_free(struct ftsort_tree_result *result);

/**
 * The node that the tree of the last `ftsort_tree_merge`, `ftsort_tree_broadcast` or
 * `ftsort_gather_sorted` that succeeded led to, or came from; the same on all survivors. [L]
 *
 * \param[in] group a live group.
 * \return the node; -1 if there was none yet, and for NULL.
 */
int32_t ftsort_tree_sink(const struct ftsort *group);

/**
 * The rank that executed that node: who has the result. [L]
 *
 * \param[in] group a live group.
 * \return the rank; -1 if there was none yet, and for NULL.
 */
int32_t ftsort_tree_holder(const struct ftsort *group);

/**
 * The dimensions of that tree, counted from 0, in the order in which data cross them on their way to
 * the sink (1996 paper, Section 2.2). [L]
 *
 * \param[in] group a live group.
 * \param[out] dimensions filled with up to `capacity` of them; may be NULL if `capacity` is 0.
 * \param[in] capacity how many fit.
 * \return how many there are; 0 if there was no tree yet, and for NULL.
 */
size_t ftsort_tree_order(const struct ftsort *group,
                         uint32_t *dimensions,
                         size_t capacity);

/**
 * How many links of that tree are faulty, and were worked around. [L]
 *
 * \param[in] group a live group.
 * \param[out] helps how many messages went to another neighbour, to be passed on with its own; may be
 * NULL.
 * \param[out] detours how many took a way over other nodes; may be NULL.
 * \return how many; 0 if there was no tree yet, and for NULL.
 */
size_t ftsort_tree_faulty_links(const struct ftsort *group,
                                size_t *helps,
                                size_t *detours);

/**
 * Hands the whole result of a sort to one rank, in order, in pieces of about 4 MiB that come along a
 * tree around faulty links (as in `ftsort_tree_merge`). Needs memory for some pieces only, on any
 * rank. [C]
 *
 * Each record is handed out once, and not before all survivors have agreed that its piece came. Nothing
 * else is kept of a result: if a rank dies whose blocks were not handed out to their end, or the rank
 * that gets them, the call fails with `FTSORT_ERR_DATA_LOST` on all survivors, `ftsort_lost_ranks` says
 * who that was, and what was handed out before is right as far as it goes. The results stay as they are.
 * In fault schedules every piece is round 2.
 *
 * \param[in,out] group a live group.
 * \param[in] options borrowed for the call; NULL: all defaults. Its sink is the rank that gets the
 * records (`ftsort_tree_holder`); its operation is not looked at, but is the same on all ranks.
 * \param[in] result this rank's result of a sort of this group, the same sort on all ranks; not changed.
 * \param[in] consume see `ftsort_consume_fn`; not NULL on any rank, since any might get the records.
 * \param[in] user passed to `consume` as it is; never read.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (on all ranks where the options are not the same, where
 * `options.links` cuts somebody off, or where the results are not of one sort),
 * `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE`, also where links that `options.detect_ms` found cut
 * somebody off; `FTSORT_ERR_DATA_LOST`, `FTSORT_ERR_CALLBACK`, `FTSORT_ERR_MEMORY`,
 * `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_gather_sorted(struct ftsort *group,
                                   const struct ftsort_tree_options *options,
                                   const struct ftsort_result *result,
                                   ftsort_consume_fn consume,
                                   void *user);

/**
 * Watches the ranks of a group from now on, and advises its sorts: the Dynamic Group of Recommended
 * Processes (2018 paper). At every commit of `ftsort_run` and `ftsort_rounds_run` the survivors agree on
 * who is recommended; who is not executes no node from then on, as if it had crashed, but its blocks are
 * moved, not lost, and once it is recommended again its nodes come back to it (`FTSORT_EVENT_EXCLUDED`,
 * `FTSORT_EVENT_REJOINED`). If nobody is recommended, all work. A rank that is left out still takes part
 * in every collective call: one that is stopped altogether keeps the others waiting, and leaving it out
 * shortens only its work. [C]
 *
 * \param[in,out] group a live group without a monitor.
 * \param[in] config borrowed for the call; NULL: all defaults.
 * \param[out] out the monitor, for the functions that look at it; it belongs to the group and is valid
 * until `ftsort_monitor_stop`, `ftsort_leave` or `ftsort_free`. May be NULL.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` naming the field, or where `config` is not the same on all
 * ranks; `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE` if there is a monitor; `FTSORT_ERR_EXCLUDED`;
 * `FTSORT_ERR_MEMORY`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_monitor_start(struct ftsort *group,
                                   const struct ftsort_monitor_options *config,
                                   const struct ftsort_monitor **out);

/**
 * Ends what `ftsort_monitor_start` began: from now on all living ranks execute their nodes. A private
 * communicator that it had stays until `MPI_Finalize`, for messages may still be on their way. [C]
 *
 * \param[in,out] group a live group; without a monitor nothing happens.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for a NULL group; `FTSORT_ERR_STATE`;
 * `FTSORT_ERR_EXCLUDED`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
 */
ftsort_status ftsort_monitor_stop(struct ftsort *group);

/**
 * What this rank's monitor knows of a rank. May be called by any thread at any time, also while another
 * one is in `ftsort_run`. [L]
 *
 * \param[in] monitor from `ftsort_monitor_start`.
 * \param[in] rank one of the group's.
 * \param[in,out] out set `struct_size` before; that many bytes are filled in.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, a rank that there is not, or a `struct_size` too
 * small to hold itself.
 */
ftsort_status ftsort_monitor_get_view(const struct ftsort_monitor *monitor,
                                      int32_t rank,
                                      struct ftsort_monitor_view *out);

/**
 * What a monitor has cost this rank so far. May be called by any thread at any time. [L]
 *
 * \param[in] monitor from `ftsort_monitor_start`.
 * \param[out] sent messages sent; may be NULL. 0 in the foreground.
 * \param[out] answered tests answered; may be NULL. 0 in the foreground.
 * \return 1 if it has a thread of its own, 0 if it runs in the foreground; -1 for NULL.
 */
int ftsort_monitor_cost(const struct ftsort_monitor *monitor, uint64_t *sent, uint64_t *answered);

/**
 * Gives the figures of the last `ftsort_run` or `ftsort_rounds_run`. [L]
 *
 * \param[in] group a live group.
 * \param[in,out] out set `struct_size` before; that many bytes are filled in.
 * \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a `struct_size` too small to hold itself.
 */
ftsort_status ftsort_get_stats(const struct ftsort *group, struct ftsort_stats *out);

/**
 * The version of the library that is loaded, which may differ from the header's macros. [L]
 *
 * \param[out] major may be NULL, as the others.
 * \param[out] minor for 0.x versions this one changes with the ABI.
 * \param[out] patch the rest.
 */
void ftsort_version(int *major, int *minor, int *patch);

/**
 * What the library was built from: its version, the Rust compiler, the MPI compiler wrapper and the
 * MPI library, and whether that has ULFM. For bug reports. [L]
 *
 * \return a static, NUL-terminated line.
 */
const char *ftsort_build_info(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FTSORT_H */
