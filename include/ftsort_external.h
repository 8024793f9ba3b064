/* ftsort_external.h: sorts files that need not fit into memory, although ranks fail or the whole job ends.
 *
 *   const char *sources[] = {"events.bin"};
 *   ftsort_external files = FTSORT_EXTERNAL_INIT;
 *   files.sources = sources;
 *   files.source_count = 1;
 *   files.output = "sorted.bin";
 *   ftsort_external_sort(group, &record, &files, NULL);
 *
 * docs/external.md explains phases, memory and failures. The conventions are those of ftsort.h.
 */
#ifndef FTSORT_EXTERNAL_H
#define FTSORT_EXTERNAL_H

/* Generated from src/capi: do not edit. */

#include "ftsort.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Reads `bytes` bytes of a source from `position` on into `buffer`. Called on the thread that calls
 * ftsort_external_sort, for any part of the source on any rank, and again after failures. Returns 0, or another
 * number to make the sort fail with FTSORT_ERR_CALLBACK on all ranks. Must not call ftsort or collective functions
 * of MPI, throw, or longjmp. */
typedef int (*ftsort_read_fn)(void *user, uint64_t position, void *buffer, size_t bytes);

/** Receives `bytes` sorted bytes, which belong to `position` of the output. Called on the thread that calls
 * ftsort_external_sort. After a failure a part may be passed again, also by another rank; it replaces the bytes
 * before. Parts of earlier batches are not passed again: when it returns, the bytes must be where a failure of
 * this rank does not lose them, for example in a file that all ranks see. Returns 0, or another number to make the
 * sort fail with FTSORT_ERR_STORE on all ranks. Must not call ftsort or collective functions of MPI, throw, or
 * longjmp. */
typedef int (*ftsort_write_fn)(void *user, uint64_t position, const void *data, size_t bytes);

/** The files of an external sort. Start from FTSORT_EXTERNAL_INIT, which makes every member zero. Borrowed for the
 * call. Later versions append members. */
typedef struct ftsort_external {
  size_t struct_size;    /**< `sizeof(ftsort_external)`. */
  /** The paths of the files to sort, which are taken as one file, one after the other. Every rank must be able to
   * read all of them. NULL with `read`. */
  const char *const *sources;
  size_t source_count;   /**< The number of files in `sources`. */
  /** The path of the sorted file, in one directory that all ranks see and can write; the same name on all ranks. An
   * existing file is replaced at the end; a pipe, a device or a directory is refused, also behind a symbolic link.
   * It has the mode 0600. One job at a time may write an output. NULL with `write`. */
  const char *output;
  /** The paths of directories for sorted runs, which together take the bytes of this rank's part of the source and
   * of the indexes of the runs: a record and 8 bytes for each block of 64 KiB, or of fewer bytes with little
   * memory. Three passes need room for parts of one run besides (docs/external.md). They may be local to the host.
   * NULL: the directory of `output`. */
  const char *const *scratch;
  size_t scratch_count;  /**< The number of directories in `scratch`. */
  /** The number of bytes that the buffers of the sort may take on this rank. 0: half of
   * `ftsort_config.memory_limit`, or of the available memory. The smallest value of all ranks counts. */
  size_t memory_bytes;
  /** Not 0: continues an earlier sort of the same source into `output` that ended before it was complete, with any
   * number of ranks, or starts a new one if there is none. The state stays in the file `output`.ftsort for a later
   * call, which returns at once if the sort is complete. A program that replaces `output` removes that file. A
   * comparator needs `ftsort_record.type_id`. The same on all ranks; not with `write`. */
  int32_t resume;
  /** Not 0: waits for the storage before a batch is committed, so that a sort can be resumed after a host has lost
   * its power; without it `resume` must not be used after a loss of power. A sort always waits if `output` is one
   * of `sources`, and for the records of a batch if the ranks are on several hosts, of which one may be lost. */
  int32_t sync;
  ftsort_read_fn read;   /**< See `ftsort_read_fn`; in place of `sources`. */
  uint64_t bytes;        /**< The size of the source in bytes, with `read`. */
  /** With `read`, a number that is another one for other data, so that a sort of them is not resumed. May be 0. */
  uint64_t identity;
  ftsort_write_fn write; /**< See `ftsort_write_fn`; in place of `output`. Then `scratch` is needed. */
  void *user;            /**< Passed to `read` and `write`, and never read. */
  /** The number of bytes before the first record in each file of `sources`, which are not read. 0 with `read`. */
  uint64_t source_offset;
  /** The position of the first record in each file of the output. The bytes before it, for example of a header, are
   * left to the program, which can write them when the sort is complete. The same on all ranks. */
  uint64_t output_offset;
  /** The number of files of the output, up to 100000. 0: one file with the name `output`. Otherwise the files are
   * `output`.00000, `output`.00001 and so on, in the order of the records, each with an equal number of them or
   * one more. Files of an earlier output with higher numbers are left. The same on all ranks; 0 with `write`. */
  uint64_t output_parts;
} ftsort_external;

#define FTSORT_EXTERNAL_INIT \
  { sizeof(ftsort_external), NULL, 0, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, NULL, NULL, 0, 0, 0 }

/** Figures of an external sort on this rank. Later versions append members. */
typedef struct ftsort_external_stats {
  size_t struct_size;       /**< `sizeof(ftsort_external_stats)`, set by the caller. */
  uint64_t records;         /**< The number of records of the source. */
  uint64_t resumed_records; /**< The number of records that an earlier sort had put into the output. */
  /** The number of runs of an earlier sort that this rank found in its scratch directories. */
  uint64_t resumed_runs;
  uint64_t runs;            /**< The number of runs that this rank made, also those in place of lost ones. */
  uint64_t batches;         /**< The number of committed batches. */
  /** How often the ranks began again with the first batch that was not committed, after a failure or because a run
   * could not be read back. */
  uint64_t restarts;
  /** The bytes of the records that this rank read from the source, and from runs for batches and merges. Reads of
   * indexes, and of the blocks in which batches end, are not counted. */
  uint64_t bytes_read;
  uint64_t bytes_written;   /**< The bytes that this rank wrote to runs, with their indexes, and to the output. */
} ftsort_external_stats;

#define FTSORT_EXTERNAL_STATS_INIT { sizeof(ftsort_external_stats), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Sorts files that need not fit into memory. [C]
 *
 * The ranks read the source in parts that fit into memory, sort each of them into a run in a scratch directory, and
 * then sort the records of all runs batch by batch into the output: every byte is read twice and written twice.
 * With little memory a run is merged from several parts, and every byte is read and written three times. Reads,
 * sorts and writes overlap, except with callbacks. The source is the redundancy: if a rank fails, the survivors
 * make its runs again from the source and repeat the present batch. Batches that are committed are not written
 * again. The order of equal keys is not kept. docs/external.md has the details.
 *
 * \param record   the layout of the records, the same on all ranks; as for ftsort_run, but `stable` must be 0
 * \param files    source, output and scratch directories
 * \param stats    receives figures, up to its `struct_size` (FTSORT_EXTERNAL_STATS_INIT); may be NULL
 * \return FTSORT_OK, then the output is complete under its name; FTSORT_ERR_STORE if a file cannot be read or
 *         written, the source has changed, another job has begun to write the output, or a rank does not see its
 *         directory; FTSORT_ERR_MEMORY if `memory_bytes` is too small for the source; FTSORT_ERR_CORRUPT, with
 *         FTSORT_CHECK_DIGEST, if records of a batch changed in memory or in a message while they were sorted;
 *         FTSORT_ERR_CALLBACK; FTSORT_ERR_ARGUMENT also if the state in `output`.ftsort is of another source or
 *         record, or if a source has the name of a temporary file of `output` or of one of its parts; or a status
 *         of "Collective calls". After an error no file is left, unless `resume` is set, the group is poisoned,
 *         another job has begun, or a file of the output has its name already. Runs of failed ranks stay in
 *         directories that no survivor sees (docs/external.md)
 */
ftsort_status ftsort_external_sort(ftsort *group, const ftsort_record *record, const ftsort_external *files,
                                   ftsort_external_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* FTSORT_EXTERNAL_H */
