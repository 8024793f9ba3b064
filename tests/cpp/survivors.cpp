/* Sorts, queries, keeps states and recovers results while FTSORT_FAULTS kills ranks with SIGKILL; the survivors compare
 * the results with the whole input.
 *
 *   survivors OPERATION      (under mpirun; OPERATION: sort, parity, argsort, recover, lost, lost_on_comm or states) */
#include <csignal>
#include <cstring>
#include <functional>
#include <unistd.h>

#include "expect.hpp"

/* More than an input that is sorted without rounds. */
constexpr int COUNT = 40000;

template <class Call>
static ftsort_status status_of(Call call)
{
  try {
    call();
  } catch (const ftsort::error &error) {
    return error.status();
  }
  return FTSORT_OK;
}

static void recover(const ftsort::group &g, const std::vector<star> &mine, const std::vector<star> &all)
{
  ftsort::config strict;
  strict.min_survivors = static_cast<std::uint32_t>(g.ranks());
  const ftsort::group whole{MPI_COMM_WORLD, std::move(strict)};
  ftsort::monitor_options options;
  options.mode = FTSORT_MONITOR_FOREGROUND;
  auto monitor = ftsort::start_monitor(whole, options);
  const auto sorted = g.sort(mine, &star::number);
  if (g.rank() == 1) kill(getpid(), SIGKILL);
  while (g.fault_check() == 0) continue;
  g.recover(sorted);
  std::uint64_t here = 0, everywhere = 0;
  for (const auto &block : sorted) here += block.size();
  MPI_Allreduce(&here, &everywhere, 1, MPI_UINT64_T, MPI_SUM, g.comm());
  EXPECT(everywhere == all.size() && is_part_of(sorted, all, same_star));

  /* A stop that fails for another reason than the state of the group has released the monitor. */
  EXPECT(status_of([&] { monitor.stop(); }) == FTSORT_ERR_EXCLUDED);
  EXPECT(status_of([&] { monitor.look(0); }) == FTSORT_ERR_ARGUMENT);
}

/* Before its input has left it, rank 1 fails in the sort of a communicator, which has the same error. */
static void lose_on_communicator()
{
  const std::vector<std::int32_t> numbers(COUNT, 7);
  bool is_lost = false;
  try {
    ftsort::group::sort_on(MPI_COMM_WORLD, numbers);
  } catch (const ftsort::error &error) {
    is_lost = error.status() == FTSORT_ERR_DATA_LOST && error.ranks() == std::vector<std::int32_t>{1};
  }
  EXPECT(is_lost);
  std::puts("survivors: fine");
  ftsort::group::of(MPI_COMM_WORLD).leave();
}

/* Without redundancy the input of rank 1 is lost: all survivors catch the error that names it. */
static void lose(const std::vector<star> &mine)
{
  ftsort::config config;
  config.store = FTSORT_STORE_NONE;
  ftsort::group g{MPI_COMM_WORLD, std::move(config)};
  bool is_lost = false;
  try {
    g.sort(mine, &star::number);
  } catch (const ftsort::error &error) {
    is_lost = error.status() == FTSORT_ERR_DATA_LOST && error.ranks() == std::vector<std::int32_t>{1};
  }
  EXPECT(is_lost);
  std::puts("survivors: fine");
  g.leave();
}

/* A loop in which each node counts the rounds; rank 1 fails in the third. */
static void count_rounds(const ftsort::group &g)
{
  const ftsort::store states{g};
  const std::uint32_t rounds = 5;
  std::uint32_t round = 0;
  while (round < rounds) {
    g.fault_check();
    g.inject(round);
    for (std::int32_t node = 0; node < g.ranks(); node++) {
      if (g.executor(node) != g.rank()) continue;
      const auto before = states.get<std::uint32_t>(node);
      EXPECT((before.empty() ? 0 : before[0]) == round);
      states.put(node, std::vector<std::uint32_t>{round + 1});
    }
    if (states.commit()) round++;
  }
  EXPECT(g.is_failed(1));
}

int main(int argc, char **argv)
{
  ftsort::prepare();
  ftsort::allow_faults();
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string operation = argc > 1 ? argv[1] : "sort";
  const auto mine = stars_of(rank, COUNT);
  if (operation == "lost") lose(mine);
  if (operation == "lost_on_comm") lose_on_communicator();
  ftsort::config config;
  if (operation == "parity") {
    config.store = FTSORT_STORE_PARITY;
    config.parity_group = 4;
  }
  ftsort::group g{MPI_COMM_WORLD, std::move(config)};
  auto all = all_stars(ranks, COUNT);
  if (operation == "recover") {
    recover(g, mine, all);
  } else if (operation == "states") {
    count_rounds(g);
  } else {
    std::stable_sort(all.begin(), all.end(), [](const star &a, const star &b) { return a.magnitude > b.magnitude; });
    const auto order = ftsort::order<star>::of(std::greater<>{}, &star::magnitude).stable();
    if (operation == "argsort") {
      EXPECT(is_part_of(g.argsort(mine, order), all, [](std::uint64_t place, const star &s) {
        return place == static_cast<std::uint64_t>(s.number);
      }));
    } else {
      const auto sorted = g.sort(mine, order);
      EXPECT(is_part_of(sorted, all, same_star) && g.stats().failures > 0);
    }
  }
  std::puts("survivors: fine");
  g.leave();
}
