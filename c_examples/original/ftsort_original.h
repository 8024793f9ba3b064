/* ftsort_original.h: the functions that the pseudocode of the papers calls (2018, 2019, 2024), over ftsort_store.h.
 *
 *   original_start(&argc, &argv, NULL);
 *   checkpoint(i, list, size);                   // L_i, the input
 *   FaultDetection();
 *   for (d = original_dimension(); d > 0;) {
 *     FaultInject(tries++);
 *     F = FaultDetection();                      // line 5
 *     ...                                        // for each k with cover(k) == i: one round, with a checkpoint
 *     if (F == FaultDetection()) d = d - 1;      // lines 25 to 27
 *   }
 *   original_end(0);
 *
 * A node that has not failed is its own cover. Dimensions and clusters count from 1, as in the papers. The lists are of
 * int. For one source file of a program: the group is a static variable of this header. An error that all ranks have
 * ends all processes, as in the authors' programs. An error of one rank ends its process, which the others tolerate as a
 * failure. */
#ifndef FTSORT_ORIGINAL_H
#define FTSORT_ORIGINAL_H
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_store.h"

static ftsort *original_group;
/* A message or a list of this round is missing. */
static int original_incomplete;
/* The number of failed ranks of which the covers have the lists. */
static int original_failed;
/* Each committed list is also written to saveRankK.dat; see original_keep_files. */
static int original_files;

/* Ends the processes of all ranks, which all call this function. The lowest survivor has the exit status `code`, and the
 * others have 0: mpirun may hang if several ranks have another status. */
static inline void original_end(int code)
{
  ftsort_leave(original_group, ftsort_executor(original_group, 0) == ftsort_rank(original_group) ? code : 0);
}

/* Ends this process alone, after an error that the other ranks do not know. They tolerate it as a failure, of which Open
 * MPI tells them if a signal ends the process, and not if it exits with another status than 0. */
static inline void original_fail(void)
{
  fflush(NULL);
  raise(SIGKILL);
}

/* Checks a collective call, which returns the same status on all ranks. */
static inline void original_need(ftsort_status status, const char *function)
{
  if (status == FTSORT_OK) return;
  fprintf(stderr, "%s: %s\n", function, ftsort_last_error(original_group));
  original_end(1);
}

/* Checks a local call. */
static inline void original_need_here(ftsort_status status, const char *function)
{
  if (status == FTSORT_OK) return;
  fprintf(stderr, "%s: %s\n", function, ftsort_last_error(original_group));
  original_fail();
}

/* Initialises MPI and ftsort, with checkpoints in a directory that all ranks share, or for NULL in other ranks' memory.
 * FTSORT_FAULTS may kill ranks. Returns the rank. */
static inline int original_start(int *argc, char ***argv, const char *directory)
{
  ftsort_config config = FTSORT_CONFIG_INIT;
  config.store = directory != NULL ? FTSORT_STORE_DIRECTORY : config.store;
  config.store_directory = directory;
  ftsort_prepare();
  ftsort_allow_faults();
  MPI_Init(argc, argv);
  if (ftsort_init(MPI_COMM_WORLD, &config, &original_group) != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return ftsort_rank(original_group);
}

/* log N, and N: a power of two. */
static inline int original_dimension(void) { return (int)ftsort_dimension(original_group); }
static inline int original_nodes(void) { return 1 << original_dimension(); }

/* Writes a list to saveRankK.dat, the file of node k in the authors' programs. The file appears when it is complete.
 * Returns 0 if that fails. */
static inline int original_save(int node, const void *keys, size_t count, int rank)
{
  char name[64], draft[80];
  int saved;
  FILE *file;
  snprintf(name, sizeof name, "saveRank%d.dat", node);
  snprintf(draft, sizeof draft, "%s.%d", name, rank);
  remove(draft);
  file = fopen(draft, "wbx"); /* a new file, and not the target of a link */
  saved = file != NULL && fwrite(keys, sizeof(int32_t), count, file) == count;
  if (file != NULL && fclose(file) != 0) saved = 0;
  if (saved && rename(draft, name) != 0) saved = 0;
  if (!saved) {
    fprintf(stderr, "cannot write %s: %s\n", name, strerror(errno));
    if (file != NULL) remove(draft);
  }
  return saved;
}

/* From now on each list is in the file saveRankK.dat of the working directory as soon as it is committed, written by
 * the cover of k. The files are for other programs; recoveries use ftsort's own copies. */
static inline void original_keep_files(void) { original_files = 1; }

/* The cover of a node (2024), which replaces it (2018, 2019): the rank that executes its part. */
static inline int cover(int node) { return ftsort_executor(original_group, node); }
static inline int replace(int node) { return cover(node); }

/* c(i,s), the s-th cluster of node i. Returns the number of nodes; `nodes` has room for N / 2. */
static inline int cis(int i, int s, int *nodes)
{
  return (int)ftsort_cluster(i, (uint32_t)s - 1, nodes, (size_t)1 << (s - 1));
}

/* The partner of node k in dimension d: the first fault-free node of c(k,d), or -1. It executes node k xor 2^(d-1), with
 * which k exchanges. For -1 and a node k that has not failed, k's own rank executes both; if k has failed too, the
 * cover of k xor 2^(d-1) may be another rank than the cover of k. */
static inline int partner(int k, int d) { return ftsort_partner(original_group, k, (uint32_t)d - 1); }

/* Kills this process if FTSORT_FAULTS names it and the round. */
static inline void FaultInject(int round)
{
  original_need_here(ftsort_inject(original_group, (uint32_t)round), "FaultInject");
}

/* The checkpoint of node k, which counts once FaultDetection has committed it. */
static inline void checkpoint(int k, const int *list, int size)
{
  original_need_here(ftsort_store_put(original_group, k, list, (size_t)size * sizeof *list), "checkpoint");
}

static inline int original_count_failed(void)
{
  int rank, failed = 0;
  for (rank = 0; rank < ftsort_ranks(original_group); rank++) failed += ftsort_is_failed(original_group, rank);
  return failed;
}

/* Reports that a message or a list of this round is missing, so that FaultDetection does not commit the round. */
static inline void original_missing(void) { original_incomplete = 1; }

/* Returns the committed list of node k, to be freed by the caller. If original_comm has found a failure since the last
 * FaultDetection, the list of the failed rank is not here yet: the answer is an empty list, and the round is run again. */
static inline int *readCheckpoint(int k, int *size)
{
  const void *state;
  size_t bytes;
  int *list;
  original_need_here(ftsort_store_get(original_group, k, &state, &bytes), "readCheckpoint");
  list = (int *)malloc(bytes > 0 ? bytes : 1);
  if (list == NULL || (state == NULL && original_count_failed() == original_failed)) {
    fprintf(stderr, "readCheckpoint: node %d has no list, or there is no memory for it\n", k);
    original_fail();
  }
  if (state == NULL) original_missing();
  else memcpy(list, state, bytes);
  *size = (int)(bytes / sizeof *list);
  return list;
}

/* Writes the committed lists to their files. If ranks fail meanwhile, the new covers write the lists of these ranks. */
static inline void original_save_lists(void)
{
  size_t new_failures;
  do {
    uint32_t saved = 1;
    int node, self = ftsort_rank(original_group);
    for (node = 0; node < original_nodes(); node++) {
      const void *state;
      size_t bytes;
      if (cover(node) != self) continue;
      original_need_here(ftsort_store_get(original_group, node, &state, &bytes), "original_save_lists");
      if (state != NULL && !original_save(node, state, bytes / sizeof(int32_t), self)) saved = 0;
    }
    original_need(ftsort_agree(original_group, &saved, &new_failures), "original_save_lists");
    if (!saved) original_end(1);
    if (new_failures > 0) original_need(ftsort_fault_check(original_group, NULL), "original_save_lists");
    original_failed = original_count_failed();
  } while (new_failures > 0);
}

/* Finds failures; all survivors get the same answer. If no rank has failed since the last call, and no message is
 * missing, the checkpoints since then are committed, and the number of the last call is returned again. Otherwise nothing
 * is committed, and a higher number is returned: F = F' does not hold, and the round is run again. */
static inline int FaultDetection(void)
{
  static int interrupted = 0;
  int committed;
  original_need(ftsort_store_commit(original_group, !original_incomplete, &committed), "FaultDetection");
  original_incomplete = 0;
  original_failed = original_count_failed();
  if (!committed) interrupted++;
  if (committed && original_files) original_save_lists();
  return interrupted;
}

static inline int MPI_myBarrier(void) { return FaultDetection(); }

/* The communicator of the survivors, and in it the rank that executes a node. */
static inline MPI_Comm original_comm(void)
{
  MPI_Comm comm;
  original_need(ftsort_comm(original_group, &comm), "original_comm");
  return comm;
}
static inline int original_rank_of(int node) { return ftsort_comm_rank(original_group, cover(node)); }

#endif
