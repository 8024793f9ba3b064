/* The number of failed expectations of a test program, and the macro that counts and prints them. */
#ifndef EXPECT_H
#define EXPECT_H
#include <stdio.h>

static int rank, ranks, failures;

#define EXPECT_IN(count, condition)                                                  \
  do {                                                                               \
    if (!(condition)) {                                                              \
      (count)++;                                                                     \
      fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition);         \
    }                                                                                \
  } while (0)
#define EXPECT(condition) EXPECT_IN(failures, condition)

#endif
