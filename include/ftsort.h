/* ftsort: a distributed sort for MPI programs that tolerates process failures.
 *
 *   ftsort_prepare();                                                  // before MPI_Init
 *   MPI_Init(&argc, &argv);
 *   ftsort_result *sorted;
 *   ftsort_sort(MPI_COMM_WORLD, keys, count, MPI_DOUBLE, &sorted);     // ranks may fail in here
 *   for (size_t i = 0; i < ftsort_result_count(sorted); i++) {
 *     ftsort_block block;
 *     ftsort_result_block(sorted, i, &block);                          // block.data, block.count, block.offset
 *   }
 *   ftsort_result_free(sorted);
 *
 * Other headers: ftsort_query.h (more than the sort of one array), ftsort_rounds.h (algorithms of the caller on the
 * virtual hypercube, and their simulation), ftsort_tree.h (collectives that avoid faulty links), ftsort_store.h
 * (loops that keep states), ftsort_external.h (files larger than memory), ftsort_monitor.h (slow ranks),
 * ftsort_verify.h (data corruption); ftsort_all.h: all.
 * Documents: docs/sorting.md, docs/failure-model.md, docs/glossary.md, docs/fault-injection.md, docs/trace.md.
 *
 * Collective calls. Functions marked [C] are collective: all surviving ranks of the group call them in the same
 * order, and all return the same status, except that a rank that passed an invalid argument gets
 * FTSORT_ERR_ARGUMENT and the others FTSORT_ERR_PEER_ARGUMENT; a NULL or busy group is an error of that rank alone.
 * Besides the statuses that its description lists, every collective call can return FTSORT_ERR_STATE, _MEMORY,
 * _STORE, _EXCLUDED, _MPI and _INTERNAL. Functions marked [L] are local.
 *
 * An object is used by one thread at a time. `const T *` arguments are borrowed for the call; `T **` results
 * belong to the caller. In every struct zero selects the default. Structs that may grow start with their size, so
 * that programs compiled with an older header keep working. The library prints nothing and does not change
 * the communicators, error handlers or signal handlers of the caller (except by ftsort_prepare and `keep_comm`).
 */
#ifndef FTSORT_H
#define FTSORT_H

/* Generated from src/capi: do not edit. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define FTSORT_VERSION_MAJOR 0
#define FTSORT_VERSION_MINOR 2
#define FTSORT_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses and objects ------------------------------------------------------------------------------- */

/** The status that a call returns: one of `ftsort_status_code`. Later versions may add codes, so treat every
 * negative value as an error. */
typedef int32_t ftsort_status;

/** The values of `ftsort_status`; ftsort_last_error returns the text of an error. After -1 to -3 nothing has
 * changed, after -20 to -41 the group stays usable, and after -60 to -62 it is unusable: leave or free it. */
typedef enum ftsort_status_code {
  FTSORT_OK = 0,                 /**< Success. */
  FTSORT_ERR_ARGUMENT = -1,      /**< An argument of this rank is invalid, or differs from other ranks. */
  FTSORT_ERR_PEER_ARGUMENT = -2, /**< An argument of another rank is invalid. */
  FTSORT_ERR_STATE = -3,         /**< The group is busy or unusable, or MPI is not running. */
  FTSORT_ERR_NO_ULFM = -20,      /**< MPI was built without ULFM or started without it (`mpirun --with-ft ulfm`). */
  FTSORT_ERR_MEMORY = -21,       /**< A rank ran out of memory or reached its memory limit. */
  FTSORT_ERR_STORE = -22,        /**< A rank could not write or read the store. */
  FTSORT_ERR_CALLBACK = -23,     /**< A callback refused, or `compare` contradicts itself. */
  FTSORT_ERR_DATA_LOST = -40,    /**< The store has too few copies to recover data of failed ranks. */
  FTSORT_ERR_CORRUPT = -41,      /**< Data corruption was detected and could not be repaired. */
  FTSORT_ERR_EXCLUDED = -60,     /**< Fewer than `min_survivors` ranks are left, as far as this rank can see. */
  FTSORT_ERR_MPI = -61,          /**< MPI failed in another way than by a failed process. */
  FTSORT_ERR_INTERNAL = -62,     /**< A defect in ftsort. */
} ftsort_status_code;

/** A group of ranks: the ranks of a communicator, with the knowledge which of them have failed.
 *
 * One call at a time may use a group. A call by a callback of the group or by a second thread returns
 * FTSORT_ERR_STATE, and a getter its neutral value (as for NULL); ftsort_rank, ftsort_ranks and ftsort_dimension
 * always answer. MPI is called from the thread of the call. Several threads may use one group each if
 * MPI_Init_thread granted MPI_THREAD_MULTIPLE; they create groups, communicators and monitors one at a time, in
 * the same order on all ranks, and meanwhile no other thread calls MPI itself. While a group exists, the process
 * keeps buffers of at most one sort for the next one; on Linux the system takes them back when memory is short. */
typedef struct ftsort ftsort;

/** The blocks that a sort, rounds or a tree leave on this rank, in ascending order of node.
 *
 * Belongs to the caller, and remains valid after its group is released. Several threads may read it at once. */
typedef struct ftsort_result ftsort_result;

/** A protected input: the records of this rank and the redundancy that this rank keeps for other ranks.
 *
 * Belongs to the caller, and is used with the group that made it. */
typedef struct ftsort_input ftsort_input;

/** Growable bytes that a callback fills. Belongs to ftsort, which also releases them if the callback refuses. */
typedef struct ftsort_buffer ftsort_buffer;

/* ---- One call -------------------------------------------------------------------------------------------- */

/**
 * Sorts the elements of all ranks of `comm`. [C]
 *
 * Uses the group of `comm` with the default configuration, which ftsort_group_of describes.
 *
 * \param comm    an intra-communicator; all of its ranks call this function
 * \param data    `count` elements of `type` on this rank, as for ftsort_run; NULL if `count` is 0
 * \param count   the number of elements on this rank; may differ between ranks
 * \param type    an integer or floating-point type of MPI, or any type that ftsort_record_of_type accepts
 * \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return FTSORT_OK; FTSORT_ERR_DATA_LOST if data of failed ranks cannot be recovered (ftsort_lost_ranks names the
 *         ranks); another status of ftsort_init or of ftsort_run
 */
ftsort_status ftsort_sort(MPI_Comm comm, const void *data, size_t count, MPI_Datatype type, ftsort_result **result);

/**
 * Returns the group that ftsort_sort uses on `comm`, and creates it at the first call. [C]
 *
 * The group has the default configuration and is attached to `comm` as an attribute. MPI_Comm_free of `comm`
 * releases it; for MPI_COMM_WORLD and MPI_COMM_SELF MPI_Finalize does, or ftsort_leave, which is needed after
 * failures. MPI_Comm_dup does not copy it. ftsort_free has no effect on it. If a rank cannot attach it, all return
 * FTSORT_ERR_STATE, no rank keeps it, and the next call tries again. A group that has become unusable
 * (FTSORT_ERR_MPI, FTSORT_ERR_INTERNAL, FTSORT_ERR_EXCLUDED) stays attached: leave it, or free `comm`.
 *
 * \param comm   an intra-communicator; all of its ranks call this function
 * \param group  receives the group, which belongs to `comm`; NULL after an error
 * \return as ftsort_init; if the group exists, the call is local, and NULL is an error on this rank alone
 */
ftsort_status ftsort_group_of(MPI_Comm comm, ftsort **group);

/* ---- Records --------------------------------------------------------------------------------------------- */

/** The type of a key. */
typedef enum ftsort_key {
  FTSORT_KEY_I8 = 1,       /**< `int8_t`. */
  FTSORT_KEY_U8 = 2,       /**< `uint8_t`. */
  FTSORT_KEY_I16 = 3,      /**< `int16_t`. */
  FTSORT_KEY_U16 = 4,      /**< `uint16_t`. */
  FTSORT_KEY_I32 = 5,      /**< `int32_t`. */
  FTSORT_KEY_U32 = 6,      /**< `uint32_t`. */
  FTSORT_KEY_I64 = 7,      /**< `int64_t`. */
  FTSORT_KEY_U64 = 8,      /**< `uint64_t`. */
  /** `float`, in the total order of IEEE 754: -NaN, -infinity, ..., -0.0, +0.0, ..., +infinity, +NaN. */
  FTSORT_KEY_F32 = 9,
  FTSORT_KEY_F64 = 10,     /**< `double`, in the same order. */
  FTSORT_KEY_BYTES = 11,   /**< `key_bytes` bytes, in the order of memcmp. */
  FTSORT_KEY_COMPARE = 12, /**< The order of `compare`. */
  FTSORT_KEY_TEXT = 13,    /**< `key_bytes` bytes up to the first 0, in the order of strncmp on unsigned bytes. */
  FTSORT_KEY_TEXT16 = 14,  /**< `uint16_t` up to the first 0, by number: UTF-16 in native byte order. */
  FTSORT_KEY_TEXT32 = 15,  /**< `uint32_t` up to the first 0, by number: UTF-32 in native byte order, NumPy `U`. */
  FTSORT_KEY_LIST = 16,    /**< The keys at `parts`: the first decides, among equal ones the second, and so on. */
} ftsort_key;

/** Compares two records, as for qsort: returns a number below, equal to or above 0. Must be pure and a total order
 * of keys, the same on all ranks and threads, or calls return FTSORT_ERR_CALLBACK, or lose records. Called by
 * several threads at once. Must not throw, longjmp, or call ftsort or MPI. Records are aligned as in a block. */
typedef int (*ftsort_compare_fn)(void *user, const void *a, const void *b);

/** One of several keys of a record. Keys may overlap. */
typedef struct ftsort_key_part {
  size_t offset;      /**< The position in a record, in bytes; any alignment. */
  size_t bytes;       /**< The size in bytes; 0 for the natural size of a number. */
  int32_t key;        /**< One of `ftsort_key`, but not FTSORT_KEY_COMPARE and not FTSORT_KEY_LIST. */
  int32_t descending; /**< Not 0: descending order. */
} ftsort_key_part;

/** The layout of a record: contiguous bytes of a fixed size without pointers, because records move to other
 * processes. Start from an FTSORT_RECORD_ macro. The same on all ranks. Later versions append members. */
typedef struct ftsort_record {
  size_t struct_size;           /**< `sizeof(ftsort_record)`. */
  size_t record_bytes;          /**< The size in bytes with padding, which counts as data; up to 2^28. */
  size_t key_offset;            /**< The position of the key, in bytes; any alignment. 0 without a single key. */
  size_t key_bytes;             /**< Its size in bytes; 0: the natural size of a number, or no single key. */
  int32_t key;                  /**< One of `ftsort_key`. */
  int32_t descending;           /**< Not 0: descending order; of a list the reverse of its whole order. */
  /** Not 0: records with equal keys must keep the order of ranks and positions, also in descending order. All
   * algorithms keep it, except FTSORT_BITONIC_MERGE, which then returns FTSORT_ERR_ARGUMENT. */
  int32_t stable;
  ftsort_compare_fn compare;    /**< FTSORT_KEY_COMPARE only; ftsort_result_verify uses it too. */
  void *user;                   /**< Passed to `compare` and never read. */
  const ftsort_key_part *parts; /**< FTSORT_KEY_LIST only: `part_count` keys, borrowed for the call. */
  size_t part_count;            /**< The number of keys at `parts`: 1 to 64 for FTSORT_KEY_LIST, otherwise 0. */
  uint64_t type_id;             /**< A number of the type and the order of `compare` on all ranks; 0: none. */
} ftsort_record;

/* A plain number: ftsort_record record = FTSORT_RECORD_PLAIN(double, FTSORT_KEY_F64); */
#define FTSORT_RECORD_PLAIN(T, KIND) \
  { sizeof(ftsort_record), sizeof(T), 0, 0, (KIND), 0, 0, NULL, NULL, NULL, 0, 0 }
/* A struct that is sorted by a member, a number: FTSORT_RECORD_MEMBER(struct star, mass, FTSORT_KEY_F32) */
#define FTSORT_RECORD_MEMBER(T, MEMBER, KIND) \
  { sizeof(ftsort_record), sizeof(T), offsetof(T, MEMBER), 0, (KIND), 0, 0, NULL, NULL, NULL, 0, 0 }

/* A struct that is sorted by a member, an array: of bytes in the order of memcmp, or of text up to the first 0. */
#define FTSORT_RECORD_BYTES(T, MEMBER) FTSORT_RECORD_ARRAY(T, MEMBER, FTSORT_KEY_BYTES)
#define FTSORT_RECORD_TEXT(T, MEMBER) FTSORT_RECORD_ARRAY(T, MEMBER, FTSORT_KEY_TEXT)
#define FTSORT_RECORD_ARRAY(T, MEMBER, KIND) \
  { sizeof(ftsort_record), sizeof(T), offsetof(T, MEMBER), sizeof(((T *)0)->MEMBER), (KIND), 0, 0, NULL, NULL, \
    NULL, 0, 0 }

/* A struct that is sorted by several keys:
 *   ftsort_key_part keys[] = {FTSORT_KEY_PART(struct star, mass, FTSORT_KEY_F32), ...};
 *   ftsort_record record = FTSORT_RECORD_LIST(struct star, keys); */
#define FTSORT_KEY_PART(T, MEMBER, KIND) { offsetof(T, MEMBER), sizeof(((T *)0)->MEMBER), (KIND), 0 }
#define FTSORT_RECORD_LIST(T, KEYS) \
  { sizeof(ftsort_record), sizeof(T), 0, 0, FTSORT_KEY_LIST, 0, 0, NULL, NULL, KEYS, \
    sizeof(KEYS) / sizeof *(KEYS), 0 }
/* Records in the order of FUNCTION. */
#define FTSORT_RECORD_COMPARE(T, FUNCTION, USER) \
  { sizeof(ftsort_record), sizeof(T), 0, 0, FTSORT_KEY_COMPARE, 0, 0, (FUNCTION), (USER), NULL, 0, 0 }

/**
 * Describes the elements of an MPI datatype as records. [L]
 *
 * Integer and floating-point types are plain numbers (MPI_CHAR: `unsigned char`); pairs such as MPI_DOUBLE_INT are
 * sorted by the number. A derived type of MPI_Type_dup, _contiguous, _create_struct or _create_resized is sorted by
 * its first number: the predefined type that its constructor names first. Its whole extent is the record.
 *
 * \param type    a datatype of C or Fortran; a derived type has a lower bound of 0
 * \param record  receives the record with `struct_size`, ascending; `descending` and `stable` may be set afterwards
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a type without an order (complex numbers, `long double`) or of another
 *         constructor; FTSORT_ERR_STATE if MPI is not running; FTSORT_ERR_MPI
 */
ftsort_status ftsort_record_of_type(MPI_Datatype type, ftsort_record *record);

/* ---- Configuration --------------------------------------------------------------------------------------- */

/** The sorting algorithm. */
typedef enum ftsort_algorithm {
  /** FTSORT_SAMPLESORT; on 128 ranks and more the sort with the least predicted cost (see ftsort_stats). */
  FTSORT_AUTO = 0,
  /** HyperQuickSort (Wagar 1987; 2024 paper, Algorithm 1): log2(N) rounds; in each a subcube agrees on a pivot, and
   * a node sends about half of its block to its partner. */
  FTSORT_HYPERQUICKSORT = 1,
  /** QuickMerge (Quinn 1989; 2024 paper, Algorithm 2): HyperQuickSort with all pivots from the first round. */
  FTSORT_QUICKMERGE = 2,
  /** Modified QuickMerge (2024 paper, Section 4.2): with FTSORT_PIVOT_PAPER, pivots are averages over all ranks. */
  FTSORT_QUICKMERGE_MODIFIED = 3,
  /** Bitonic sort (2024 paper, Algorithm 4; 2019 paper): log2(N) (log2(N) + 1) / 2 rounds; in each a node sends its
   * whole block, so traffic does not depend on the keys. Blocks of the size of the longest input fill up from node
   * 0. Stores keep the blocks of every round, because they cannot be recomputed from inputs. */
  FTSORT_BITONIC = 4,
  /** Bitonic merge of an input that is a bitonic sequence over all ranks (2024 paper, Algorithm 3): log2(N) rounds
   * and one that checks. FTSORT_ERR_ARGUMENT if the input is not bitonic, if counts differ, if the number of ranks
   * is not a power of two, or with `spares` (FTSORT_ERR_PEER_ARGUMENT on excluded ranks). */
  FTSORT_BITONIC_MERGE = 5,
  FTSORT_SAMPLESORT = 6,   /**< Sample sort: one exchange, in which every rank sends every other rank its part. */
  FTSORT_SAMPLESORT_2 = 7, /**< Sample sort in two levels: about 2 sqrt(N) messages of a rank. */
  FTSORT_SAMPLESORT_3 = 8, /**< Sample sort in three levels. */
} ftsort_algorithm;

/** The redundancy that lets the survivors recover the data of a failed rank. */
typedef enum ftsort_store {
  /** `replicas` copies of each input in the memory of other ranks, on other hosts if there are any. Lost blocks are
   * recomputed from inputs. Tolerates `replicas` failures at once, and any number one after another, because the
   * survivors replace lost copies. */
  FTSORT_STORE_MEMORY = 0,
  /** Files with checksums in `store_directory`, which all ranks must see. Tolerates any failures while one rank
   * survives. Without `store_sync`, data that a host had not written when it failed can be missing. */
  FTSORT_STORE_DIRECTORY = 1,
  /** No redundancy. A failure that loses data ends the sort with FTSORT_ERR_DATA_LOST on all survivors. */
  FTSORT_STORE_NONE = 2,
  /** No redundancy, but `reload` returns the input of a failed rank again, from its file or generator. Tolerates
   * any failures while one rank survives, and costs nothing until a rank fails. */
  FTSORT_STORE_RELOAD = 3,
  /** `parity` shares of an erasure code over the inputs of `parity_group` ranks, of different hosts if possible:
   * less memory than copies. Tolerates `parity` failures of a group at once, and any number one after another. */
  FTSORT_STORE_PARITY = 4,
} ftsort_store;

/** The choice of pivots in HyperQuickSort and QuickMerge. */
typedef enum ftsort_pivot {
  /** From samples of all blocks of a subcube: balanced for every distribution of keys. */
  FTSORT_PIVOT_SAMPLED = 0,
  /** As in the papers: from the list of the root, or averages over all ranks. Shares can be far from equal. */
  FTSORT_PIVOT_PAPER = 1,
} ftsort_pivot;

/** The way in which the survivors agree on the set of failed ranks. */
typedef enum ftsort_repair {
  FTSORT_REPAIR_AGREE = 0, /**< Agree and acknowledge, on one communicator that is never repaired. */
  /** FaultDetection of the papers, for comparison. MPI may not survive a failure while it makes a communicator. */
  FTSORT_REPAIR_SHRINK = 1,
} ftsort_repair;

/** The kind of an event. */
typedef enum ftsort_event_kind {
  FTSORT_EVENT_ROUND = 1,    /**< `round` of `rounds` was committed. Small sorts commit all at once. */
  FTSORT_EVENT_FAILURE = 2,  /**< `rank` has failed. */
  FTSORT_EVENT_EXECUTOR = 3, /**< Node `rank` is executed by rank `peer` for the rest of the call. */
  /** This rank restored the block of node `rank`, from a copy of rank `peer`, or from the directory or inputs (-1).
   * Blocks that are restored before round 0 is committed are not reported. */
  FTSORT_EVENT_RESTORED = 4,
  FTSORT_EVENT_REPLAY = 5,   /**< `round` is replayed after failures. */
  /** Rank `peer` detected data corruption in `round`, which is replayed, and accuses `rank`, or no rank (-1). A
   * rank that is accused twice executes no node for the rest of the sort. */
  FTSORT_EVENT_CORRUPT = 6,
  FTSORT_EVENT_EXCLUDED = 7, /**< A monitor excludes `rank` from work until it rejoins or the call ends. */
  FTSORT_EVENT_REJOINED = 8, /**< `rank` is recommended again, and executes nodes for the rest of the call. */
  FTSORT_EVENT_RENEWED = 9,  /**< ftsort_result_recover has recovered a result and renewed its redundancy. */
} ftsort_event_kind;

/** An event. Valid during the callback only. */
typedef struct ftsort_event {
  size_t struct_size; /**< `sizeof(ftsort_event)` of the library; later versions append members. */
  int32_t kind;       /**< One of `ftsort_event_kind`; ignore unknown kinds. */
  int32_t rank;       /**< See the kind; else -1. */
  int32_t peer;       /**< See the kind; else -1. */
  uint32_t round;     /**< The round: 0 loads, and `rounds - 1` of a sort makes the result. */
  uint32_t rounds;    /**< The number of rounds. */
  uint32_t epoch;     /**< The number of repairs and changes of executors so far. */
  /** The lowest surviving rank. All survivors receive the same events, except FTSORT_EVENT_RESTORED. */
  int32_t lowest_survivor;
  int32_t finding;    /**< FTSORT_EVENT_CORRUPT: one of `ftsort_finding` (ftsort_verify.h). */
} ftsort_event;

/** Receives an event after the survivors have agreed on it. Called on every rank by the thread that called ftsort.
 * Must not throw or longjmp. A call of ftsort with this group returns FTSORT_ERR_STATE. */
typedef void (*ftsort_event_fn)(void *user, const ftsort_event *event);

/** Receives one line of text without a newline, valid during the callback. `level`: 1 warning, 2 information. The
 * rules of `ftsort_event_fn` apply. */
typedef void (*ftsort_log_fn)(void *user, int level, const char *line);

/** Returns the input of `rank` again, byte for byte, in `data` (see ftsort_buffer_resize). Called on the executor
 * of node `rank` when no rank has that input: with FTSORT_STORE_RELOAD, and with other stores if their copies are
 * lost (of files before the first commit). The bytes are compared with the size and the hash of the original, if
 * these are known. Returns 0, or any other number to refuse; a refusal or other bytes end the call with
 * FTSORT_ERR_CALLBACK. The rules of `ftsort_event_fn` apply; other threads of ftsort may sort meanwhile. */
typedef int (*ftsort_reload_fn)(void *user, int32_t rank, ftsort_buffer *data);

/**
 * Gives the `buffer` of a callback the size `bytes` (0 is allowed), fills it with zeros, and returns its address,
 * aligned to 64 bytes, until the next call with it or the end of the callback; NULL without memory or for NULL. [L]
 */
void *ftsort_buffer_resize(ftsort_buffer *buffer, size_t bytes);

/**
 * Appends a copy of `bytes` bytes, which are not part of this buffer, to the `buffer` of a callback; `data` is NULL
 * if `bytes` is 0. Returns 0; 1 for an invalid argument or if memory is exhausted, and the buffer is unchanged. A
 * callback can return this number. [L]
 */
int ftsort_buffer_append(ftsort_buffer *buffer, const void *data, size_t bytes);

/** The configuration of a group. Start from FTSORT_CONFIG_INIT; zero selects the default of every member. Later
 * versions append members, and treat missing members of a shorter struct as zero.
 *
 * `algorithm`, `store`, `replicas`, `parity`, `parity_group`, `pivot`, `repair`, `dense`, `checks`,
 * `min_survivors`, `spares`, `release_after_run` and `keep_comm` must be the same on all ranks; `reload` and
 * FTSORT_NO_TIMEOUT must be set on all ranks or on none; the others may differ. */
typedef struct ftsort_config {
  size_t struct_size;       /**< `sizeof(ftsort_config)`. */
  int32_t algorithm;        /**< One of `ftsort_algorithm`. */
  int32_t store;            /**< One of `ftsort_store`. */
  int32_t pivot;            /**< One of `ftsort_pivot`. */
  int32_t repair;           /**< One of `ftsort_repair`. */
  /** Not 0: every survivor but idle spares and excluded ranks receives one block, in the order of ranks, and the
   * sizes differ by at most one record, also after failures. Costs two small rounds that move records. */
  int32_t dense;
  uint32_t replicas;        /**< FTSORT_STORE_MEMORY only: copies of each input beside the original. 0: 1. */
  /** Threads for local sorting and merging. 0: the processors that this process may use, divided by the survivors
   * on this host, at least 1. At most 1024. Threads that cannot be started are not used. */
  uint32_t threads;
  int32_t accept_no_ulfm;   /**< Not 0: accept an MPI without ULFM, on which failures are not tolerated. */
  /** Milliseconds without a sign of life of a rank after which calls that wait return FTSORT_ERR_MPI; call
   * ftsort_leave then. A rank that computes shows signs of life, a stopped one does not: docs/failure-model.md. 0:
   * 60000. FTSORT_NO_TIMEOUT: no limit, as always with FTSORT_REPAIR_SHRINK, which refuses other values above 0. */
  uint32_t timeout_ms;
  /** The number of survivors below which calls return FTSORT_ERR_EXCLUDED. 0: 1. In a network that can split, more
   * than half of the ranks ensures that at most one part continues. */
  uint32_t min_survivors;
  /** The number of bytes that blocks and messages of this group may take in this process. A call that would exceed
   * it returns FTSORT_ERR_MEMORY on all ranks before it allocates. Buffers of up to 1 MiB may exceed it by 16 MiB.
   * 0: the memory that is available on this host, divided by its survivors, and at least 8 MiB. */
  size_t memory_limit;
  /** FTSORT_STORE_DIRECTORY only: a directory that all ranks can write and read. It needs the sticky bit if all
   * users can write to it. Copied. The library uses and removes files with names `ftsort-*` in it. */
  const char *store_directory;
  /** Failures and corruptions to inject, for tests: see docs/fault-injection.md. Copied. Empty: none. NULL: none,
   * or the environment variable FTSORT_FAULTS if the program has called ftsort_allow_faults. */
  const char *faults;
  ftsort_reload_fn reload;  /**< See `ftsort_reload_fn`; NULL: inputs cannot be read again. */
  ftsort_event_fn on_event; /**< See `ftsort_event_fn`; may be NULL. */
  ftsort_log_fn on_log;     /**< See `ftsort_log_fn`; may be NULL. */
  void *user;               /**< Passed to the callbacks and never read. */
  uint32_t checks;          /**< Bits of `ftsort_check` (ftsort_verify.h). 0: data are trusted, except files. */
  /** The prefix of trace files, `PREFIX.RANK.json`, which ftsort_leave and ftsort_free merge into `PREFIX.json`:
   * see docs/trace.md. Copied. NULL: the environment variable FTSORT_TRACE; empty: none. */
  const char *trace;
  int32_t store_sync;       /**< Not 0: files of the store survive power failures: docs/failure-model.md. */
  int32_t group_access;     /**< Not 0: the group can read files of store and trace (mode 0640). 0: mode 0600. */
  uint32_t spares;          /**< The number of spares, which replace failed ranks: docs/failure-model.md. */
  /** Not 0: redundancy is released at the end of each call, which saves its memory, but a rank that fails later
   * takes its blocks of the result along. 0: it is kept until ftsort_result_free. */
  int32_t release_after_run;
  uint32_t parity;          /**< FTSORT_STORE_PARITY only: the shares of a group. 0: 1. */
  uint32_t parity_group;    /**< FTSORT_STORE_PARITY only: its ranks, more than `parity`. 0: 8. */
  int32_t keep_comm;        /**< Not 0: `comm` itself is used (ftsort_init); not with FTSORT_REPAIR_SHRINK. */
} ftsort_config;

#define FTSORT_NO_TIMEOUT UINT32_MAX /* ftsort_config.timeout_ms */
#define FTSORT_CONFIG_INIT \
  { sizeof(ftsort_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, \
    0, 0, 0, 0 }

/* ---- Groups ---------------------------------------------------------------------------------------------- */

/**
 * Sets variables with which MPI tolerates failures; call it before MPI_Init, while the process has one thread. [L]
 *
 * Sets the environment variables of Open MPI that are not set yet, and ignores SIGPIPE if its action is the default
 * (a TCP connection to a failed process raises it). `ftsort-mpirun` does the same from outside, so that this call
 * is optional; the MCA parameter file sets the variables only. Other MPI libraries ignore them.
 *
 * \return FTSORT_OK; FTSORT_ERR_STATE if MPI is initialised already, and nothing was set
 */
ftsort_status ftsort_prepare(void);

/** Lets FTSORT_FAULTS inject failures into later groups, in tests: see docs/fault-injection.md. [L] */
void ftsort_allow_faults(void);

/**
 * Creates a group of the ranks of `comm`. [C]
 *
 * The group communicates on a private communicator. `comm` is not kept, and its error handler is neither called nor
 * changed. If a rank fails while the communicator is created, the job may end. `config.keep_comm` avoids that: the
 * group communicates on `comm` itself, which must live until the group is released, and meanwhile returns errors
 * and is not used by the program; after FTSORT_ERR_MPI it can only be freed. `comm` may contain failed ranks: they
 * count as failed from the start, and only the survivors call this function.
 *
 * \param comm    an intra-communicator; its ranks are the ranks of the group and never change
 * \param config  borrowed for the call; NULL selects all defaults
 * \param group   receives the group; release it with ftsort_free or ftsort_leave; NULL after an error
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks for an inter-communicator, and if a member of `config` that
 *         must agree differs between ranks; FTSORT_ERR_NO_ULFM; FTSORT_ERR_STORE if the store directory cannot be
 *         used; FTSORT_ERR_STATE if MPI is not running; or another status of "Collective calls". With MPI_COMM_NULL
 *         this rank returns at once, and the others wait for it
 */
ftsort_status ftsort_init(MPI_Comm comm, const ftsort_config *config, ftsort **group);

/**
 * Releases a group, which must not be used afterwards. [L]
 *
 * Every survivor calls it before MPI_Finalize; it does not communicate. Results remain valid; files of released
 * ones are removed: call ftsort_agree first if others may recover them. Does nothing for NULL, for a group of
 * ftsort_group_of, which belongs to its communicator, and in a callback of the group.
 */
void ftsort_free(ftsort *group);

/**
 * Ends the process; replaces ftsort_free, MPI_Finalize and exit. [C]
 *
 * Survivors can hang in MPI_Finalize, where they wait for failed ranks. This function waits for the other
 * survivors. If no rank has failed (and the heartbeat detector of Open MPI has no thread, with which MPI_Finalize
 * hangs), it releases the group and calls MPI_Finalize and exit. Otherwise it flushes the C streams for at most 10
 * seconds and calls _exit, without MPI_Finalize and atexit handlers. A zero exit status of mpirun proves nothing.
 *
 * \param group      a group, even an unusable one, or a group of ftsort_group_of
 * \param exit_code  the exit status of the process. Not 0 on several ranks, it can hang mpirun
 * \return only on an error: FTSORT_ERR_ARGUMENT for NULL; FTSORT_ERR_STATE if MPI is finalised already, and in a
 *         callback of the group
 */
ftsort_status ftsort_leave(ftsort *group, int exit_code);

/* ---- Sorting --------------------------------------------------------------------------------------------- */

/**
 * Sorts the records of all ranks. [C]
 *
 * The result is the same multiset in ascending order, from block to block in ascending order of node. Each survivor
 * receives the blocks of the nodes that it executes: its own, and those of failed ranks that it stands in for.
 * Ranks may fail at any moment, all but one of them; the store decides how many failures the data survive (see
 * `ftsort_store`). A rank that was known to have failed before the call contributes nothing. If a rank fails after
 * the call and before the result is released, ftsort_result_recover rebuilds its blocks.
 *
 * \param record  the layout of the records, the same on all ranks; borrowed for the call, except `compare` and
 *                `user`, which ftsort_result_verify uses again
 * \param data    `count` records of this rank, of any alignment; NULL if `count` is 0. They must stay unchanged
 *                until the call returns, and after FTSORT_ERR_MPI or FTSORT_ERR_INTERNAL until the process ends
 * \param count   the number of records of this rank; may differ between ranks
 * \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return FTSORT_OK; FTSORT_ERR_DATA_LOST if data of failed ranks cannot be recovered (ftsort_lost_ranks names the
 *         ranks); FTSORT_ERR_CORRUPT; FTSORT_ERR_CALLBACK if `reload` refuses or `compare` contradicts itself;
 *         FTSORT_ERR_ARGUMENT on all ranks if `record` differs between ranks; or another status of "Collective
 *         calls"
 */
ftsort_status ftsort_run(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                         ftsort_result **result);

/**
 * Protects an input before it is sorted. [C]
 *
 * Copies the records of this rank and stores the redundancy that the configured store provides. Once this function
 * has returned, the input survives the failure of its rank, and the array of the caller is not needed any more.
 * Call it as early as the data exist, for example after reading a file. ftsort_input_update (ftsort_store.h)
 * replaces the records. An input takes the memory of one copy of the records, and of its replicas or parity shares.
 *
 * \param record  the layout of the records, the same on all ranks; borrowed for the call, except `compare` and
 *                `user`, which are used again by the sorts of the input
 * \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
 * \param count   the number of records of this rank; may differ between ranks
 * \param input   receives the protected input; release it with ftsort_input_free; NULL after an error
 * \return FTSORT_OK; FTSORT_ERR_DATA_LOST if a rank failed before its records were protected (ftsort_lost_ranks
 *         names the ranks); another status of ftsort_run
 */
ftsort_status ftsort_protect(ftsort *group, const ftsort_record *record, const void *data, size_t count,
                             ftsort_input **input);

/**
 * Sorts a protected input. [C]
 *
 * As ftsort_run, but no moment of the call is unprotected. The input stays as it is and can be sorted again without
 * new copies, also by another key. If ranks have failed, their records are sorted all the same, and copies that
 * failed with them are renewed. After FTSORT_ERR_DATA_LOST the input continues without the lost records.
 *
 * \param input   a protected input of this group, the same on all ranks
 * \param record  the layout for this sort, the same on all ranks and with the record size of the input; NULL: that
 *                of ftsort_protect
 * \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
 * \return as ftsort_run
 */
ftsort_status ftsort_run_protected(ftsort *group, ftsort_input *input, const ftsort_record *record,
                                   ftsort_result **result);

/** Releases a protected input and its redundancy; NULL is allowed. Results of its sorts stay valid. [L] */
void ftsort_input_free(ftsort_input *input);

/* ---- Results of sorts, rounds and trees ------------------------------------------------------------------ */

/** One block of a result. Borrowed from the result. */
typedef struct ftsort_block {
  int32_t node;    /**< The node of the block. */
  /** Records in order, aligned as in an array that starts at a multiple of 16, or the bytes of a state or tree
   * result, aligned to 8. Not NULL, even if `count` is 0. */
  const void *data;
  size_t count;    /**< The number of elements: records, or bytes. */
  uint64_t offset; /**< The position of the first record in the global order, in records; 0 for bytes. */
} ftsort_block;

/** Returns the number of blocks on this rank: one for each node that it executes, or 0 for NULL. [L] */
size_t ftsort_result_count(const ftsort_result *result);

/** Describes block `index`, valid as long as the result; FTSORT_ERR_ARGUMENT for NULL or a large `index`. [L] */
ftsort_status ftsort_result_block(const ftsort_result *result, size_t index, ftsort_block *block);

/** Returns the number of records of a sort over all ranks; of other results the elements on this rank. [L] */
uint64_t ftsort_result_total(const ftsort_result *result);

/**
 * Recovers the blocks of ranks that have failed since the result was made. [C]
 *
 * All survivors pass the results of the same call. Lost blocks are rebuilt on the executors of their nodes, and the
 * redundancy of the result is renewed, so that the result tolerates as many failures at once as the store (see
 * `ftsort_store`), and any number one after another, until a rank releases it. Blocks of survivors stay where they
 * are; a spare that takes over may get some of them. Pointers to blocks stay valid. Without failures the call only
 * finds that there are none. `compare` and, but with FTSORT_STORE_PARITY, `reload` are used again. With
 * FTSORT_STORE_RELOAD, bitonic sorts and rounds cannot be recovered. FTSORT_CHECK_DIGEST covers the recovery.
 *
 * \param group   the group that made the result
 * \param result  the result of this rank, of a sort or of ftsort_rounds_run; it receives the rebuilt blocks
 * \return FTSORT_OK, with failures or without; FTSORT_ERR_DATA_LOST if blocks cannot be rebuilt (ftsort_lost_ranks
 *         names the failed ranks with blocks; those of survivors stay valid); FTSORT_ERR_CALLBACK if `reload`
 *         refuses; FTSORT_ERR_CORRUPT; FTSORT_ERR_ARGUMENT also for another kind of result, and on all ranks for
 *         results of different calls; or another status of "Collective calls" (after FTSORT_ERR_MEMORY, call again)
 */
ftsort_status ftsort_result_recover(ftsort *group, ftsort_result *result);

/** Releases a result, its blocks and its redundancy; NULL is allowed. [L] */
void ftsort_result_free(ftsort_result *result);

/* ---- Failures -------------------------------------------------------------------------------------------- */

/**
 * Finds failed ranks: FaultDetection of the papers. [C]
 *
 * Afterwards all survivors know the same failed ranks, and ftsort_is_failed, ftsort_executor and ftsort_partner
 * answer accordingly; the number of a rank never changes. A loop that keeps states with ftsort_store_put
 * (ftsort_store.h) calls this function at the start of each round: it discards states that were put and not
 * committed, and moves the states of failed ranks to the executors of their nodes.
 *
 * \param new_failures  receives the number of ranks that this call found failed; may be NULL
 * \return FTSORT_OK, with new failures or without; FTSORT_ERR_DATA_LOST if stored states cannot be recovered (all
 *         others are in place, and ftsort_lost_ranks names the ranks); FTSORT_ERR_MEMORY or FTSORT_ERR_STORE if
 *         states could not be moved (the next call tries again); or another status of "Collective calls"
 */
ftsort_status ftsort_fault_check(ftsort *group, size_t *new_failures);

/**
 * Agrees on a number: combines the `flags` of all survivors with a bitwise AND. [C]
 *
 * For decisions of the caller, such as whether every rank has written its part. Afterwards all survivors hold the
 * same number and know the same failed ranks. Unlike ftsort_fault_check it leaves stored states (ftsort_store.h)
 * where they are: if it finds failures, call ftsort_fault_check before the next ftsort_store_get.
 *
 * \param flags         in: the number of this rank; out: the agreed number. The number of a rank that fails during
 *                      the call is included or not, on all survivors alike
 * \param new_failures  receives the number of ranks that this call found failed; may be NULL
 * \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a NULL `flags`, which counts as 0 for the other ranks, and they return
 *         FTSORT_OK; or another status of "Collective calls"
 */
ftsort_status ftsort_agree(ftsort *group, uint32_t *flags, size_t *new_failures);

/**
 * Lends a communicator of the survivors, in ascending order of rank. [C]
 *
 * Its error handler is MPI_ERRORS_RETURN. It is created again only if ranks failed since the last call. MPI
 * libraries survive failures worst while they create a communicator: call this function as seldom as possible.
 *
 * \param survivors  receives the communicator, which belongs to the group: do not free it. It is valid until the
 *                   group is released, or until the next ftsort_comm that finds new failures
 * \return FTSORT_OK; FTSORT_ERR_STATE also if MPI cannot make the communicator on some rank; or another status of
 *         "Collective calls"
 */
ftsort_status ftsort_comm(ftsort *group, MPI_Comm *survivors);

/** Returns the number of `rank` in the communicator of the last ftsort_comm; MPI_PROC_NULL if it has none. [L] */
int ftsort_comm_rank(const ftsort *group, int32_t rank);

/** Returns the rank of this process in the communicator of the group; it never changes; -1 for NULL. [L] */
int32_t ftsort_rank(const ftsort *group);
/** Returns the number of ranks of the group, failed ranks included; 0 for NULL. [L] */
int32_t ftsort_ranks(const ftsort *group);
/** Returns 1 if `rank` has failed or does not exist, else 0; 1 for NULL and while the group is busy. [L] */
int ftsort_is_failed(const ftsort *group, int32_t rank);

/**
 * Returns the rank that executes `node`; -1 for a node that does not exist, NULL, or a busy group. [L]
 *
 * That is the rank `node` or its spare, unless it has failed or is an idle spare; otherwise the executor of the
 * first fault-free node of c(node,s), s = 0, 1, ... (*cover* of the 2024 paper, Section 3, which counts s from 1).
 */
int32_t ftsort_executor(const ftsort *group, int32_t node);

/**
 * Lists the ranks of the data that the last call could not recover. [L]
 *
 * They are the ranks behind FTSORT_ERR_DATA_LOST of the last call that can return it, the same on all survivors.
 *
 * \param ranks     receives the first `capacity` ranks, ascending; may be NULL if `capacity` is 0
 * \param capacity  the number of elements at `ranks`
 * \return the number of these ranks, which may exceed `capacity`; 0 for none, for NULL, and for a busy group
 */
size_t ftsort_lost_ranks(const ftsort *group, int32_t *ranks, size_t capacity);

/* ---- Diagnostics ----------------------------------------------------------------------------------------- */

/** Returns one English sentence about a status, or "unknown status"; any thread may call it. [L] */
const char *ftsort_status_text(ftsort_status status);

/**
 * Returns the reason of the last error: the argument and its value, the file, or the rank. [L]
 *
 * \param group  a group; NULL for the last failing call of this thread that has no group, such as ftsort_sort,
 *               ftsort_init, ftsort_result_block and calls with a NULL group
 * \return a NUL-terminated text, valid until the next call with this group (for NULL, until the next failing call
 *         of this thread without a group); empty if no call failed; never NULL
 */
const char *ftsort_last_error(const ftsort *group);

/** Figures of the last sort, search, protection or rounds on this rank. Later versions append members. */
typedef struct ftsort_stats {
  size_t struct_size;       /**< `sizeof(ftsort_stats)`, set by the caller. */
  double total_seconds;     /**< Seconds from the call to the result. */
  double sort_seconds;      /**< Seconds of local sorting. */
  double exchange_seconds;  /**< Seconds of pivots, partitioning and exchanges; of rounds also of callbacks. */
  double merge_seconds;     /**< Seconds of merging sorted runs into the result. */
  double store_seconds;     /**< Seconds of protecting inputs and storing versions, with copies to other ranks. */
  double commit_seconds;    /**< Seconds of agreements at the ends of rounds, including waits. */
  double repair_seconds;    /**< Seconds of agreeing on failed ranks and restoring lost blocks. */
  uint64_t bytes_sent;      /**< Bytes sent to other ranks. */
  uint64_t bytes_stored;    /**< Bytes put into the store on this rank. */
  uint64_t rounds;          /**< Committed rounds, including loading and the result. */
  uint64_t rounds_replayed; /**< Rounds that were replayed. */
  uint64_t failures;        /**< Ranks that were found failed. */
  /** The peak bytes of blocks and messages of the group in this process, input copy and result included. */
  uint64_t peak_bytes;
  int32_t algorithm;        /**< The algorithm that sorted, one of `ftsort_algorithm`; -1 for ftsort_rounds_run. */
  uint64_t corruptions;     /**< Detected data corruptions. */
  uint64_t injected;        /**< Changes of data of this rank by `ftsort_config.faults`. */
  double predicted_seconds; /**< Predicted seconds of exchanges, if FTSORT_AUTO chose; otherwise 0. */
  double other_seconds;     /**< The least prediction for another algorithm. */
} ftsort_stats;

#define FTSORT_STATS_INIT { sizeof(ftsort_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Returns the figures of the last sort, search, protection or rounds, and the `algorithm` of the last sort or
 * rounds; other calls leave them. `stats` receives as many bytes as its `struct_size` says (FTSORT_STATS_INIT).
 * Returns FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL or a small `struct_size`; FTSORT_ERR_STATE for a busy group. [L]
 */
ftsort_status ftsort_get_stats(const ftsort *group, ftsort_stats *stats);

/**
 * Returns the version of the loaded library, which may differ from the macros of the header. Every minor version of
 * 0.x has its own ABI. Each argument may be NULL. [L]
 */
void ftsort_version(int *major, int *minor, int *patch);

/** Returns a static line for bug reports: the versions of ftsort, compiler and MPI, and whether it has ULFM. [L] */
const char *ftsort_build_info(void);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_H */
