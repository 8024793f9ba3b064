/* Checks of the C++ programs: the first that fails ends the job with its text and line. */
#ifndef FTSORT_TESTS_EXPECT_HPP
#define FTSORT_TESTS_EXPECT_HPP

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ftsort.hpp"

inline void expect_at(bool holds, const char *text, const char *file, int line)
{
  if (holds) return;
  std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define EXPECT(condition) expect_at((condition), #condition, __FILE__, __LINE__)

struct star {
  std::int32_t number;
  float magnitude;
  char name[8];
  std::array<unsigned char, 4> bytes;
  std::uint16_t kind;
};

/** The same stars in every run: some have equal magnitudes and kinds, and `number` ascends. */
inline std::vector<star> stars_of(int rank, int count)
{
  std::vector<star> stars;
  std::uint32_t state = 12345u + 977u * static_cast<std::uint32_t>(rank);
  for (int i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    star made = {};
    made.number = rank * count + i;
    made.magnitude = static_cast<float>(state >> 20) / 16;
    made.name[0] = static_cast<char>('a' + (state >> 12) % 26);
    made.name[1] = static_cast<char>('a' + (state >> 17) % 26);
    made.bytes = {static_cast<unsigned char>(state >> 24), 0, 0, static_cast<unsigned char>(state >> 8)};
    made.kind = static_cast<std::uint16_t>((state >> 9) % 7);
    stars.push_back(made);
  }
  return stars;
}

/** The stars of all ranks, rank by rank. */
inline std::vector<star> all_stars(int ranks, int count)
{
  std::vector<star> all;
  for (int rank = 0; rank < ranks; rank++) {
    const auto part = stars_of(rank, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/** Returns whether the blocks of this rank are those places of the whole, by `same(one, other)`. */
template <class Result, class T, class Same>
bool is_part_of(const Result &result, const std::vector<T> &whole, Same same)
{
  if (result.total() != whole.size()) return false;
  for (const auto &block : result)
    for (std::size_t i = 0; i < block.size(); i++)
      if (!same(block[i], whole[block.offset + i])) return false;
  return true;
}

inline bool same_star(const star &a, const star &b) { return a.number == b.number; }

#endif
