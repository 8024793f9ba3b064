/* Numbers that are the same on every rank and in every run, and medians. */
#ifndef MEASURE_H
#define MEASURE_H
#include <stdint.h>
#include <stdlib.h>

/* splitmix64. */
static inline uint64_t mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values, and returns the middle one. */
static inline double median(double *values, int count)
{
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 2];
}

#endif
