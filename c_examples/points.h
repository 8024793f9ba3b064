/* Random points in a square, of which the part in the circle estimates pi: the computation of restart.c,
 * restart_rounds.c and pi.c. */
#ifndef POINTS_H
#define POINTS_H
#include <stdint.h>

/* splitmix64. */
static uint64_t random_bits(uint64_t *seed)
{
  uint64_t x = *seed += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* The number of points in the circle. Each round of a node has its own points, on any rank and in any job. */
static uint64_t points_inside(int node, uint64_t round, uint64_t points)
{
  uint64_t seed = (uint64_t)node << 40 ^ round, inside = 0, i;
  for (i = 0; i < points; i++) {
    double x = (double)(random_bits(&seed) >> 11) / 9007199254740992.0;
    double y = (double)(random_bits(&seed) >> 11) / 9007199254740992.0;
    inside += x * x + y * y < 1;
  }
  return inside;
}

#endif
