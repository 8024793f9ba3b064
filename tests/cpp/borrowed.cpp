/* The group of a communicator goes on with its monitor after the object that started it has ended.
 *
 *   borrowed      (under mpirun, 2 ranks or more) */
#include <memory>

#include "expect.hpp"

int main(int argc, char **argv)
{
  ftsort::prepare();
  MPI_Init(&argc, &argv);
  const ftsort::group g{MPI_COMM_WORLD};
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  const std::vector<int> numbers(1000, g.rank());

  const auto calls = std::make_shared<int>(0);
  ftsort::monitor_options options;
  options.mode = FTSORT_MONITOR_FOREGROUND;
  options.interval_ms = 1;
  options.test_handler = [calls] { return ++*calls, std::uint64_t{42}; };
  ftsort::start_monitor(ftsort::group::of(copy), std::move(options));
  EXPECT(calls.use_count() == 2);
  const int before = *calls;
  for (int i = 0; i < 100; i++) ftsort::group::sort_on(copy, numbers);
  EXPECT(*calls > before);
  MPI_Comm_free(&copy);
  if (g.rank() == 0) std::puts("borrowed: fine");
  g.leave();
}
