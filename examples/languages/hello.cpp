// Sorts numbers on all ranks; the survivors of a kill finish:  FTSORT_FAULTS=1@1 ftsort-mpirun -np 4 ./hello
#include <algorithm>
#include <cstdio>
#include <random>

#include "ftsort.hpp"

int main(int argc, char **argv)
{
  ftsort::prepare();
  ftsort::allow_faults();
  MPI_Init(&argc, &argv);
  ftsort::group group{MPI_COMM_WORLD};
  std::vector<double> numbers(1000000);
  std::generate(numbers.begin(), numbers.end(), std::mt19937(static_cast<unsigned>(group.rank())));

  const auto sorted = group.sort(numbers);  // ranks may fail in here

  bool in_order = true;
  for (const auto &block : sorted) in_order &= std::is_sorted(block.begin(), block.end());
  std::printf("rank %d: %zu blocks of %zu numbers, %s\n", group.rank(), sorted.size(),
              static_cast<std::size_t>(sorted.total()), in_order ? "in order" : "NOT in order");
  group.leave();
}
