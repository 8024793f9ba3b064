/* Sorts a file that need not fit into memory, and tolerates failures of ranks and of the whole job.
 *
 *   ftsort-mpirun -np 4 ./external [options] INPUT... OUTPUT
 *     --record BYTES   the size of a record (default 100)
 *     --key BYTES      the first bytes of a record are its key, compared as unsigned bytes (default 10)
 *     --memory MB      the memory of each rank (default: half of the available memory of a rank)
 *     --scratch DIR    a directory for sorted runs; may be repeated (default: that of OUTPUT)
 *     --parts N        the number of files of the output, OUTPUT.00000 and so on (default: one file, OUTPUT)
 *     --resume         continues a job that ended before it was complete
 *     --sync           waits for the storage before each commit
 *
 * The defaults are those of the Sort Benchmark. Each rank prints its figures on one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftsort.h"
#include "ftsort_external.h"
#include "leave.h"

enum { MOST = 64 };

static int usage(const char *problem, const char *word)
{
  fprintf(stderr, "external: %s %s\n", problem, word);
  return 2;
}

int main(int argc, char **argv)
{
  const char *scratch[MOST];
  ftsort_record record;
  ftsort_external files = FTSORT_EXTERNAL_INIT;
  ftsort_external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  ftsort *group = NULL;
  ftsort_status status;
  double start;
  int arg;

  memset(&record, 0, sizeof record);
  record.struct_size = sizeof record;
  record.record_bytes = 100;
  record.key = FTSORT_KEY_BYTES;
  record.key_bytes = 10;
  files.scratch = scratch;
  for (arg = 1; arg < argc && strncmp(argv[arg], "--", 2) == 0; arg++) {
    const char *option = argv[arg];
    if (strcmp(option, "--resume") == 0) { files.resume = 1; continue; }
    if (strcmp(option, "--sync") == 0) { files.sync = 1; continue; }
    if (++arg == argc) return usage("no value for", option);
    if (strcmp(option, "--record") == 0) record.record_bytes = strtoul(argv[arg], NULL, 10);
    else if (strcmp(option, "--key") == 0) record.key_bytes = strtoul(argv[arg], NULL, 10);
    else if (strcmp(option, "--memory") == 0) files.memory_bytes = strtoul(argv[arg], NULL, 10) << 20;
    else if (strcmp(option, "--parts") == 0) files.output_parts = strtoul(argv[arg], NULL, 10);
    else if (strcmp(option, "--scratch") == 0 && files.scratch_count < MOST) scratch[files.scratch_count++] = argv[arg];
    else return usage("no option", option);
  }
  if (argc - arg < 2) return usage("needs INPUT and OUTPUT", "");
  files.sources = (const char *const *)argv + arg;
  files.source_count = (size_t)(argc - arg - 1);
  files.output = argv[argc - 1];

  ftsort_prepare();
  ftsort_allow_faults(); /* an example: FTSORT_FAULTS may kill ranks */
  MPI_Init(&argc, &argv);
  start = MPI_Wtime();
  status = ftsort_init(MPI_COMM_WORLD, NULL, &group);
  if (status == FTSORT_OK) status = ftsort_external_sort(group, &record, &files, &stats);
  if (status != FTSORT_OK) {
    fprintf(stderr, "%s\n", ftsort_last_error(group));
    if (!group) MPI_Abort(MPI_COMM_WORLD, 1);
  } else {
    printf("rank %d: %llu records in %.2f s, runs %llu of %llu, batches %llu, restarts %llu, resumed %llu, read %.1f MB, "
           "written %.1f MB\n",
           ftsort_rank(group), (unsigned long long)stats.records, MPI_Wtime() - start,
           (unsigned long long)stats.runs, (unsigned long long)(stats.runs + stats.resumed_runs),
           (unsigned long long)stats.batches, (unsigned long long)stats.restarts,
           (unsigned long long)stats.resumed_records, (double)stats.bytes_read / 1e6, (double)stats.bytes_written / 1e6);
  }
  leave_with(group, status != FTSORT_OK);
  return 1;
}
