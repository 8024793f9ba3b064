/* A fault-tolerant discrete Fourier transform of 2^K complex numbers, by the binary-exchange algorithm. Node v has the
 * v-th part of the numbers. In the round of dimension s it exchanges all of them with its partner, and each computes
 * its half of the butterflies. A last round computes the butterflies within a node.
 *
 *   ftsort-mpirun -np 4 ./fft 12          (2^12 numbers, compared with the definition of the transform)
 *   FTSORT_FAULTS="half seed=2 window=20ms" ftsort-mpirun -np 4 ./fft 12
 *
 * Element g of the result has the frequency with the K bits of g in reverse order. */
#include <math.h>

#include "rounds_example.h"

typedef struct complex_number {
  double re, im;
} complex_number;

static unsigned bits;   /* K */
static size_t n, share; /* the number of elements, and of a node's part */

/* exp(-2 pi i k / n) */
static complex_number root(size_t k)
{
  double angle = -2.0 * acos(-1.0) * (double)(k % n) / (double)n;
  complex_number w;
  w.re = cos(angle);
  w.im = sin(angle);
  return w;
}

static complex_number input(size_t g)
{
  complex_number x;
  x.re = (double)(g * 7919 % 1000) / 1000.0 - 0.5;
  x.im = (double)(g * 104729 % 1000) / 1000.0 - 0.5;
  return x;
}

/* One output of a butterfly: a + b at the lower index, (a - b) w at the upper one; `lower` is the index of a. */
static complex_number butterfly(complex_number a, complex_number b, int upper, size_t lower, size_t half)
{
  complex_number sum, w;
  double re, im;
  sum.re = a.re + b.re;
  sum.im = a.im + b.im;
  if (!upper) return sum;
  w = root(lower % (2 * half) * (n / (2 * half)));
  re = a.re - b.re;
  im = a.im - b.im;
  sum.re = re * w.re - im * w.im;
  sum.im = re * w.im + im * w.re;
  return sum;
}

/* Generates the part of a node. */
static int begin(void *user, int32_t node, ftsort_buffer *state)
{
  complex_number *x = (complex_number *)ftsort_buffer_resize(state, share * sizeof *x);
  size_t i;
  (void)user;
  if (x == NULL) return 1;
  for (i = 0; i < share; i++) x[i] = input((size_t)node * share + i);
  return 0;
}

static int absorb(void *user, const ftsort_task *task, const void *inbox, size_t bytes, ftsort_buffer *next)
{
  const complex_number *mine = (const complex_number *)task->state, *theirs = (const complex_number *)inbox;
  complex_number *x = (complex_number *)ftsort_buffer_resize(next, task->state_bytes);
  size_t first = (size_t)task->node * share, half, i, k;
  (void)user, (void)bytes;
  if (x == NULL) return 1;
  if (task->dimension != FTSORT_NO_EXCHANGE) {
    half = share << task->dimension;
    for (i = 0; i < share; i++)
      x[i] = task->is_upper ? butterfly(theirs[i], mine[i], 1, first + i - half, half)
                            : butterfly(mine[i], theirs[i], 0, first + i, half);
    return 0;
  }
  for (i = 0; i < share; i++) x[i] = mine[i];
  for (half = share / 2; half > 0; half /= 2)
    for (i = 0; i < share; i += 2 * half)
      for (k = i; k < i + half; k++) {
        complex_number a = x[k], b = x[k + half];
        x[k] = butterfly(a, b, 0, k, half);
        x[k + half] = butterfly(a, b, 1, k, half);
      }
  return 0;
}

/* Compares with the definition: the sum of x[g] exp(-2 pi i f g / n) for each frequency f. */
static int is_right(const ftsort_block *state)
{
  const complex_number *found = (const complex_number *)state->data;
  size_t i, g;
  unsigned bit;
  for (i = 0; i < share; i += share > 64 ? share / 64 : 1) {
    size_t place = (size_t)state->node * share + i, f = 0;
    double re = 0, im = 0;
    for (bit = 0; bit < bits; bit++) f |= (place >> bit & 1) << (bits - 1 - bit);
    for (g = 0; g < n; g++) {
      complex_number x = input(g), w = root(f * g);
      re += x.re * w.re - x.im * w.im;
      im += x.re * w.im + x.im * w.re;
    }
    if (fabs(re - found[i].re) + fabs(im - found[i].im) > 1e-9 * (double)n) return 0;
  }
  return state->count == share * sizeof *found;
}

int main(int argc, char **argv)
{
  ftsort_rounds rounds = FTSORT_ROUNDS_INIT;
  ftsort_round plan[32];
  uint32_t s, d;
  group = make_group(&argc, &argv, NULL);
  d = ftsort_dimension(group);
  bits = argc > 1 ? (unsigned)atoi(argv[1]) : 12;
  n = (size_t)1 << bits;
  share = n >> d;
  if (share == 0) leave_with(group, 2);
  for (s = 0; s <= d; s++) {
    plan[s].dimension = s < d ? d - 1 - s : FTSORT_NO_EXCHANGE;
    plan[s].share = 0;
  }
  rounds.plan = plan;
  rounds.round_count = d + 1;
  rounds.begin = begin; /* without emit, a node sends its whole state */
  rounds.absorb = absorb;
  run_and_leave(&rounds, is_right);
  return 1;
}
