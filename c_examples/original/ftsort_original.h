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
 * int. For one source file of a program: the group is a static variable of this header. A call that fails ends the
 * process, as the authors' programs do. */
#ifndef FTSORT_ORIGINAL_H
#define FTSORT_ORIGINAL_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort_store.h"

static ftsort *original_group;
/* A message of this round is missing. */
static int original_incomplete;
/* Each committed list is also written to saveRankK.dat; see original_keep_files. */
static int original_files;

static inline void original_need(ftsort_status status, const char *function)
{
  if (status == FTSORT_OK) return;
  fprintf(stderr, "%s: %s\n", function, ftsort_last_error(original_group));
  ftsort_leave(original_group, 1);
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

/* Ends the process. */
static inline void original_end(int code) { ftsort_leave(original_group, code); }

/* log N, and N: a power of two. */
static inline int original_dimension(void) { return (int)ftsort_dimension(original_group); }
static inline int original_nodes(void) { return 1 << original_dimension(); }

/* Writes a list to saveRankK.dat, the file of node k in the authors' programs. The file appears when it is complete.
 * Returns 0 if that fails. */
static inline int original_save(int node, const void *keys, size_t count, int rank)
{
  char name[64], draft[80];
  size_t written;
  FILE *file;
  snprintf(name, sizeof name, "saveRank%d.dat", node);
  snprintf(draft, sizeof draft, "%s.%d", name, rank);
  remove(draft);
  file = fopen(draft, "wbx"); /* a new file, and not the target of a link */
  written = file ? fwrite(keys, sizeof(int32_t), count, file) : 0;
  if (file == NULL || fclose(file) != 0 || written != count || rename(draft, name) != 0) {
    fprintf(stderr, "cannot write %s: %s\n", name, strerror(errno));
    return 0;
  }
  return 1;
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
  original_need(ftsort_inject(original_group, (uint32_t)round), "FaultInject");
}

/* The checkpoint of node k, which counts once FaultDetection has committed it. */
static inline void checkpoint(int k, const int *list, int size)
{
  original_need(ftsort_store_put(original_group, k, list, (size_t)size * sizeof *list), "checkpoint");
}

/* Returns the committed list of node k, to be freed by the caller. */
static inline int *readCheckpoint(int k, int *size)
{
  const void *state;
  size_t bytes;
  int *list;
  original_need(ftsort_store_get(original_group, k, &state, &bytes), "readCheckpoint");
  list = (int *)malloc(bytes > 0 ? bytes : 1);
  if (state == NULL || list == NULL) {
    fprintf(stderr, "readCheckpoint: node %d has no list, or there is no memory for it\n", k);
    ftsort_leave(original_group, 1);
  }
  memcpy(list, state, bytes);
  *size = (int)(bytes / sizeof *list);
  return list;
}

/* Reports that a message of this round is missing, so that FaultDetection does not commit the round. */
static inline void original_missing(void) { original_incomplete = 1; }

/* Finds failures; all survivors get the same answer. If no rank has failed since the last call, and no message is
 * missing, the checkpoints since then are committed, and the number of failed ranks is returned. Otherwise nothing is
 * committed, and a negative number is returned that equals no earlier one: F = F' does not hold, and the round is run
 * again. */
static inline int FaultDetection(void)
{
  static int interrupted = 0;
  int committed, node, rank, failed = 0;
  original_need(ftsort_store_commit(original_group, !original_incomplete, &committed), "FaultDetection");
  original_incomplete = 0;
  for (node = 0; original_files && committed && node < original_nodes(); node++) {
    int size, *list;
    if (cover(node) != ftsort_rank(original_group)) continue;
    list = readCheckpoint(node, &size);
    if (!original_save(node, list, (size_t)size, ftsort_rank(original_group))) ftsort_leave(original_group, 1);
    free(list);
  }
  for (rank = 0; rank < ftsort_ranks(original_group); rank++) failed += ftsort_is_failed(original_group, rank);
  return committed ? failed : -++interrupted;
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
