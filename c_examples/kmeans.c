/* Fault-tolerant k-means over a file: points are divided into K groups around K centres, and in each step each centre
 * moves to the mean of its group. Each step is a round without an exchange. The nodes propose the sums over their parts
 * of the file, and the decision, which all nodes share, is the sum over all.
 *
 *   ftsort-mpirun -np 4 ./kmeans points.bin 5 20        (any file: points are pairs of 16-bit numbers)
 *   FTSORT_FAULTS="half seed=4 window=30ms" ftsort-mpirun -np 5 ./kmeans points.bin 5 20
 *
 * The points never change, so they are not part of the state, which is the centres. The file is mapped, and the
 * executor of a node reads the node's part of it. This is pure as long as the file does not change. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rounds_example.h"

#define MAX_GROUPS 64
#define MAX_STEPS 1000

typedef struct centre {
  double x, y;
} centre;

typedef struct sums {
  uint64_t x, y, count; /* integers, so that the order of additions does not matter */
} sums;

static const uint16_t *file;
static size_t points; /* of the file */
static int groups, steps;

/* Adds up the points of a part of the file. */
static void add_up(size_t part, size_t parts, const centre *centres, sums *all)
{
  size_t i;
  memset(all, 0, (size_t)groups * sizeof *all);
  for (i = points * part / parts; i < points * (part + 1) / parts; i++) {
    int k, best = 0;
    double least = 1e300;
    for (k = 0; k < groups; k++) {
      double dx = centres[k].x - file[2 * i], dy = centres[k].y - file[2 * i + 1];
      if (dx * dx + dy * dy < least) least = dx * dx + dy * dy, best = k;
    }
    all[best].x += file[2 * i];
    all[best].y += file[2 * i + 1];
    all[best].count++;
  }
}

/* Moves the centres. A group without points keeps its centre. */
static void move(const sums *all, centre *centres)
{
  int k;
  for (k = 0; k < groups; k++)
    if (all[k].count > 0) {
      centres[k].x = (double)all[k].x / (double)all[k].count;
      centres[k].y = (double)all[k].y / (double)all[k].count;
    }
}

static void place(centre *centres)
{
  int k;
  for (k = 0; k < groups; k++) centres[k].x = centres[k].y = 65536.0 * (k + 0.5) / groups;
}

static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  centre *centres = (centre *)ftsort_buffer_resize(state, (size_t)groups * sizeof *centres);
  (void)user, (void)node;
  if (centres) place(centres);
  return centres == NULL;
}

static int propose(void *user, const ftsort_task *task, ftsort_buffer *proposal)
{
  sums *mine = (sums *)ftsort_buffer_resize(proposal, (size_t)groups * sizeof *mine);
  (void)user;
  if (mine) add_up((size_t)task->node, task->nodes, (const centre *)task->state, mine);
  return mine == NULL;
}

static int decide(void *user, const ftsort_task *task, const ftsort_proposal *proposals, size_t count,
                  ftsort_buffer *shared)
{
  sums *all = (sums *)ftsort_buffer_resize(shared, (size_t)groups * sizeof *all); /* contains zeros */
  size_t i;
  int k;
  (void)user, (void)task;
  for (i = 0; all && i < count; i++)
    for (k = 0; k < groups; k++) {
      const sums *one = (const sums *)proposals[i].data + k;
      all[k].x += one->x, all[k].y += one->y, all[k].count += one->count;
    }
  return all == NULL;
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  centre *centres = (centre *)ftsort_buffer_resize(next, task->state_bytes);
  (void)user, (void)inbox, (void)bytes;
  if (centres == NULL) return 1;
  memcpy(centres, task->state, task->state_bytes);
  move((const sums *)task->shared, centres);
  return 0;
}

/* Computes all steps again, over the whole file. */
static int is_right(const ftsort_block *state)
{
  centre centres[MAX_GROUPS];
  sums all[MAX_GROUPS];
  int step;
  place(centres);
  for (step = 0; step < steps; step++) {
    add_up(0, 1, centres, all);
    move(all, centres);
  }
  return state->count == (size_t)groups * sizeof *centres && memcmp(state->data, centres, state->count) == 0;
}

int main(int argc, char **argv)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round plan[MAX_STEPS];
  struct stat info;
  int i, descriptor = open(argc > 1 ? argv[1] : argv[0], O_RDONLY);
  group = make_group(&argc, &argv, NULL);
  groups = argc > 2 ? atoi(argv[2]) : 5;
  steps = argc > 3 ? atoi(argv[3]) : 20;
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || info.st_size < 4 || groups < 1 ||
      groups > MAX_GROUPS || steps < 1 || steps > MAX_STEPS) {
    /* The file may be missing on this rank alone, so that ftsort_leave would wait for the others. */
    fprintf(stderr, "usage: kmeans FILE K STEPS, with at most %d for K and %d for STEPS\n", MAX_GROUPS, MAX_STEPS);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  points = (size_t)info.st_size / 4;
  file = (const uint16_t *)mmap(NULL, points * 4, PROT_READ, MAP_SHARED, descriptor, 0);
  if (file == MAP_FAILED) fail_alone("kmeans: cannot map the file");
  for (i = 0; i < steps; i++) {
    plan[i].dimension = FTSORT_NO_EXCHANGE;
    plan[i].share = FTSORT_SHARE_ALL;
  }
  rounds.plan = plan;
  rounds.round_count = (size_t)steps;
  rounds.begin = begin;
  rounds.propose = propose;
  rounds.decide = decide;
  rounds.absorb = absorb;
  run_and_leave(&rounds, is_right);
  return 1;
}
