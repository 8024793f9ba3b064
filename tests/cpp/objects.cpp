/* Calls every C++ function, and compares the results with those of one process.
 *
 *   objects      (under mpirun, 2 to 4 ranks)
 *
 * It also compiles as C++20 and, without the part for exceptions, with -fno-exceptions. */
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "expect.hpp"
#include "options.hpp"

constexpr int COUNT = 500;

static int ranks;
static std::vector<star> mine, all;

/* The number of groups that objects have released, and whether no object may release one any more. */
static int releases;
static bool is_left;

/* Takes the place of the function of the library for the objects of this program, and calls it. */
extern "C" void ftsort_free(ftsort_handle *native)
{
  if (is_left) {
    std::fputs("objects: an object releases a group that leave has released\n", stderr);
    std::_Exit(1);
  }
  releases++;
  reinterpret_cast<void (*)(ftsort_handle *)>(dlsym(RTLD_NEXT, "ftsort_free"))(native);
}

template <class Less>
static std::vector<star> sorted_stars(Less less)
{
  std::vector<star> sorted = all;
  std::stable_sort(sorted.begin(), sorted.end(), less);
  return sorted;
}

static void orders(const group &g)
{
  const auto brighter = sorted_stars([](const star &a, const star &b) { return a.magnitude > b.magnitude; });
  const auto check = [](const ftsort::sorted<star> &result, const std::vector<star> &whole) {
    EXPECT(is_part_of(result, whole, same_star));
  };
  check(value(g.sort(mine, ftsort::order<star>::of(std::greater<>{}, &star::magnitude).stable())), brighter);
  check(value(g.sort(mine, [](const star &a, const star &b) {
          return a.magnitude != b.magnitude ? a.magnitude > b.magnitude : a.number < b.number;
        })), brighter);
  const auto magnitudes = value(g.sort(mine, std::greater<>{}, &star::magnitude));
  EXPECT(is_part_of(magnitudes, brighter, [](const star &a, const star &b) {
    return !(a.magnitude < b.magnitude) && !(b.magnitude < a.magnitude);
  }));
  const auto names = sorted_stars([](const star &a, const star &b) { return std::strncmp(a.name, b.name, 8) < 0; });
  check(value(g.sort(mine, ftsort::order<star>::of(std::less<>{}, &star::name).stable())), names);
  const auto bytes = sorted_stars([](const star &a, const star &b) { return a.bytes < b.bytes; });
  check(value(g.sort(mine, ftsort::order<star>::of(std::less<>{}, &star::bytes).stable())), bytes);
  const auto numbers = sorted_stars([](const star &a, const star &b) { return a.number > b.number; });
  check(value(g.sort(mine, std::greater<>{}, [](const star &s) { return s.number; })), numbers);
  check(value(g.sort(mine, [](const star &s) { return -s.number; })), numbers);
  check(value(g.sort(mine, ftsort::order<star>::of(std::less<>{}, &star::number).reverse())), numbers);
  EXPECT(ftsort::order<star>::of([](const star &, const star &) { return false; }).type_id(7).native().type_id == 7);
  const auto kinds = sorted_stars([](const star &a, const star &b) {
    return a.kind != b.kind ? a.kind > b.kind : a.number < b.number;
  });
  check(value(g.sort(mine, ftsort::by(ftsort::descending(&star::kind), &star::number))), kinds);

  std::vector<std::int32_t> keys;
  for (const star &s : mine) keys.push_back(-s.number);
  auto plain = value(g.sort(keys));
  std::size_t here = 0;
  for (const auto &block : plain) here += block.size();
  EXPECT(plain.columns() == 1 && !plain.empty() && plain[0].size() > 0);
  const std::vector<std::int32_t> copy = plain.dense();
  const std::vector<std::int32_t> moved = std::move(plain).dense();
  EXPECT(copy == moved && copy.size() == here && std::is_sorted(copy.begin(), copy.end()));
  EXPECT(plain.native() == nullptr && plain.size() == 0);
  EXPECT(value(group::sort_on(MPI_COMM_WORLD, keys)).total() == static_cast<std::uint64_t>(ranks) * COUNT);
  const auto by_type = value(group::order_of_type<std::int32_t>(MPI_INT32_T));
  EXPECT(group::order_of_type<double>(MPI_FLOAT).error().status() == FTSORT_ERR_ARGUMENT);
  EXPECT(group::sort_on(MPI_COMM_WORLD, keys, MPI_DOUBLE).error().status() == FTSORT_ERR_ARGUMENT);
  EXPECT(g.sort(keys, ftsort::order<int>::of_record(ftsort::order<double>().native())).error().status() == FTSORT_ERR_ARGUMENT);
  EXPECT(value(g.sort(keys, by_type)).total() == static_cast<std::uint64_t>(ranks) * COUNT);
}

static void inputs_and_arrays(const group &g)
{
  auto input = value(g.protect(mine, &star::kind));
  EXPECT(value(g.sort(input)).total() == all.size());
  const auto backwards = sorted_stars([](const star &a, const star &b) { return a.number > b.number; });
  EXPECT(is_part_of(value(g.sort(input, std::greater<>{}, &star::number)), backwards, same_star));
  value(g.update(input, std::vector<star>(mine.begin(), mine.begin() + 10)));
  EXPECT(value(g.sort(input)).total() == 10u * static_cast<unsigned>(ranks));

  value(g.set_algorithm(FTSORT_BITONIC));
  const auto bitonic = value(g.sort(mine, &star::number));
  EXPECT(value(g.stats()).algorithm == FTSORT_BITONIC && value(g.verify(bitonic, mine)) == 0);
  value(g.set_algorithm(FTSORT_AUTO));
  EXPECT(value(g.verify(bitonic)) == 0 && value(g.verify(bitonic, std::vector<star>())) > 0);
  value(g.recover(bitonic));

  const std::vector<ftsort::view<const star>> arrays = {mine, {mine.data(), 5}};
  const auto many = value(g.sort_many(arrays, &star::number));
  EXPECT(many.size() == 2 && many[0].total() == all.size() && many[1].total() == 5u * static_cast<unsigned>(ranks));

  const auto wrapped = value(g.result_of(mine, &star::number));
  EXPECT(value(g.verify(wrapped)) == 0);
}

static void queries(const group &g)
{
  const auto by_kind = sorted_stars([](const star &a, const star &b) { return a.kind < b.kind; });
  const auto is = [](std::uint64_t a, std::uint64_t b) { return a == b; };
  std::vector<std::uint64_t> indices, places(all.size());
  for (const star &s : by_kind) indices.push_back(static_cast<std::uint64_t>(s.number));
  for (std::size_t i = 0; i < indices.size(); i++) places[indices[i]] = i;
  EXPECT(is_part_of(value(g.argsort(mine, &star::kind)), indices, is));
  EXPECT(is_part_of(value(g.positions(mine, &star::kind)), places, is));
  const std::vector<std::uint64_t> wanted = {0, all.size() - 1, all.size() / 2};
  const auto selected = value(g.select(mine, wanted, &star::kind));
  for (std::size_t i = 0; i < wanted.size(); i++) EXPECT(same_star(selected[i], by_kind[wanted[i]]));
  const std::array<double, 2> halves = {0.5, 1.0};
  const auto quantiles = value(g.quantiles(mine, halves, &star::kind));
  EXPECT(quantiles[0].kind == by_kind[(all.size() + 1) / 2 - 1].kind && same_star(quantiles[1], by_kind.back()));
  EXPECT(value(g.top(mine, 20, std::greater<>{}, &star::number)).total() == 20);

  std::vector<std::uint16_t> kinds;
  std::vector<double> values;
  for (const star &s : mine) {
    kinds.push_back(s.kind);
    values.push_back(s.number);
  }
  for (const auto &rows : value(g.sort_by_key(kinds, values)))
    for (std::size_t i = 0; i < rows.size(); i++)
      EXPECT(all[static_cast<std::size_t>(rows.column<1>()[i])].kind == rows.column<0>()[i]);
  const auto mismatch = g.sort_by_key(kinds, std::vector<int>());
  EXPECT(!mismatch.has_value() && mismatch.error().status() == FTSORT_ERR_ARGUMENT);

  std::uint64_t records = 0;
  for (const auto &rows : value(g.unique(mine, &star::kind)))
    for (const std::uint64_t count : rows.column<1>()) records += count;
  for (const auto &rows : value(g.group_by(mine, ftsort::by(&star::kind), ftsort::count(), ftsort::sum(&star::number),
                                           ftsort::least(&star::magnitude), ftsort::greatest(&star::number)))) {
    for (std::size_t i = 0; i < rows.size(); i++) {
      std::int64_t sum = 0, greatest = 0;
      std::uint64_t count = 0;
      for (const star &s : all) {
        if (s.kind != rows.column<0>()[i].kind) continue;
        count++;
        sum += s.number;
        greatest = s.number;
      }
      EXPECT(rows.column<1>()[i] == count && rows.column<2>()[i] == sum && rows.column<4>()[i] == greatest);
      records -= count;
    }
  }
  EXPECT(records == 0);
}

/* A comparator that converts the keys is called; the keys of constant members have the order of others. */
struct fixed {
  int number;
  const char name[8];
};

static void converted_and_constant_keys(const group &g)
{
  const std::vector<int> numbers = {3, -1, 2, -7, g.rank()};
  const auto unsigned_order = value(g.sort(numbers, std::less<unsigned>{}));
  for (const auto &block : unsigned_order)
    EXPECT(std::is_sorted(block.begin(), block.end(), std::less<unsigned>{}));
  EXPECT(unsigned_order.total() == numbers.size() * static_cast<std::size_t>(ranks));

  const std::vector<fixed> records = {{1, "b\0z"}, {2, "b\0a"}, {3, "a"}};
  const auto named = value(g.sort(records, ftsort::order<fixed>::of(std::less<>{}, &fixed::name).stable()));
  for (const auto &block : named)
    for (std::size_t i = 0; i < block.size(); i++) {
      const std::size_t place = block.offset + i, count = static_cast<std::size_t>(ranks);
      EXPECT(block[i].number == (place < count ? 3 : 1 + static_cast<int>((place - count) % 2)));
    }
  std::size_t count = 0;
  for (const auto &block : named) count += block.size();
  EXPECT(named.dense().size() == count);
  static_assert(ftsort::detail::key_of<std::array<const char, 4>>::key == FTSORT_KEY_TEXT);
}

/* Projections of floating-point numbers have the total order of IEEE 754, as numbers and members have. */
static void total_order(const group &g)
{
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> numbers = {nan, 1.5, -0.0, -nan, 0.0, -infinity, -1.5, infinity};
  std::vector<double> whole;
  for (const double number : {-nan, -infinity, -1.5, -0.0, 0.0, 1.5, infinity, nan})
    whole.insert(whole.end(), static_cast<std::size_t>(ranks), number);
  const std::vector<double> reversed(whole.rbegin(), whole.rend());
  const auto same = [](const double &a, const double &b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  EXPECT(is_part_of(value(g.sort(numbers)), whole, same));
  EXPECT(is_part_of(value(g.sort(numbers, [](const double &number) { return number; })), whole, same));
  const auto narrow = [](const double &number) { return static_cast<float>(number); };
  EXPECT(is_part_of(value(g.sort(numbers, narrow)), whole, same));
  EXPECT(is_part_of(value(g.sort(numbers, std::greater<>{}, narrow)), reversed, same));
  EXPECT(is_part_of(value(g.sort(numbers, std::greater<>{}, [](const double &number) { return number; })), reversed,
                    same));
}

/* A record with an operator, an enumeration below 0, and no default constructor. */
enum class weight : std::int8_t { light = -3, heavy = 4 };
struct package {
  explicit package(int made) : number(made), mass(made % 2 == 0 ? weight::light : weight::heavy) {}
  int number;
  weight mass;
  friend bool operator<(const package &a, const package &b) { return a.number < b.number; }
};

static std::size_t consumed;
static void consume(ftsort::view<const package> piece) { consumed += piece.size(); }

static void packages(const group &g)
{
  std::vector<package> here, whole;
  for (int i = 10 * ranks; i-- > 0;) {
    whole.insert(whole.begin(), package(i));
    if (i % ranks == g.rank()) here.push_back(package(i));
  }
  const auto same = [](const package &a, const package &b) { return a.number == b.number; };
  const auto sorted = value(g.sort(here, std::less<>{}));
  EXPECT(is_part_of(sorted, whole, same));
  value(g.gather(ftsort::tree(), sorted, consume));
  EXPECT(consumed == (value(g.tree_info()).executor == g.rank() ? whole.size() : 0));

  const auto sum = ftsort::sum(&package::mass);
  static_assert(std::is_same_v<decltype(sum), const ftsort::aggregate<std::int64_t, weight package::*>>);
  const auto sums = value(g.group_by(here, ftsort::by(&package::mass), sum, ftsort::count()));
  for (const auto &rows : sums)
    for (std::size_t i = 0; i < rows.size(); i++)
      EXPECT(rows.column<1>()[i] == static_cast<int>(rows.column<0>()[i].mass) * 5 * ranks);

  const std::vector<std::uint64_t> wanted = {3, 0};
  EXPECT(value(g.select(here, wanted, &package::number))[0].number == 3);
  const std::array<bool, 2> flags = {true, g.rank() == 0}; /* ranks - 1 times false, ranks + 1 times true */
  EXPECT(value(g.select(flags, wanted)) == (std::vector<bool>{ranks <= 4, false}));
  EXPECT(value(g.quantiles(flags, std::array<double, 1>{1.0})) == std::vector<bool>{true});
}

struct place {
  std::int64_t cell;
};

/** A record with two base classes: a pointer to a member of the second one does not know its offset in the record. */
struct placed : star, place {};

static void base_classes(const group &g)
{
  const auto placed_of = [](const std::vector<star> &stars) {
    std::vector<placed> made;
    for (const star &s : stars) made.push_back({s, {(s.number * 37) % 101}});
    return made;
  };
  const std::vector<placed> here = placed_of(mine);
  std::vector<placed> whole = placed_of(all);
  const auto same = [](const placed &a, const placed &b) { return a.number == b.number && a.cell == b.cell; };
  std::stable_sort(whole.begin(), whole.end(), [](const placed &a, const placed &b) { return a.cell > b.cell; });
  const auto by_cell = ftsort::order<placed>::of(std::greater<>{}, &placed::cell).stable();
  EXPECT(is_part_of(value(g.sort(here, by_cell)), whole, same));
  EXPECT(is_part_of(value(g.sort(here, ftsort::by<placed>(ftsort::descending(&placed::cell), &placed::number))), whole,
                    same));
  const auto cells = value(g.sort(here, &placed::cell));
  EXPECT(is_part_of(cells, std::vector<placed>(whole.rbegin(), whole.rend()),
                    [](const placed &a, const placed &b) { return a.cell == b.cell; }));

  for (const auto &rows : value(g.group_by(here, ftsort::by<placed>(&placed::cell), ftsort::sum(&placed::cell),
                                           ftsort::count())))
    for (std::size_t i = 0; i < rows.size(); i++)
      EXPECT(rows.column<1>()[i] == rows.column<0>()[i].cell * static_cast<std::int64_t>(rows.column<2>()[i]));
}

static void rounds(const group &g)
{
  ftsort::rounds sum;
  sum.absorb = [](const ftsort_task &task, ftsort::bytes inbox, ftsort::buffer &next) {
    const auto before = ftsort::elements<std::int64_t>(task.state, task.state_bytes);
    const auto message = ftsort::elements<std::int64_t>(inbox);
    next.append((before.empty() ? 0 : before[0]) + (message.empty() ? 0 : message[0]));
  };
  const std::array<std::int64_t, 1> state = {g.rank() + 1};
  const std::int64_t expected = std::int64_t{ranks} * (ranks + 1) / 2;
  for (const auto &block : value(g.run(sum, state))) EXPECT(ftsort::elements<std::int64_t>(block)[0] == expected);

  sum.begin = [](std::int32_t, ftsort::buffer &state_of_node) { state_of_node.append(std::int64_t{0}); };
  sum.emit = [](const ftsort_task &task, ftsort::buffer &outbox) { outbox.pass(0, task.state_bytes); };
  sum.propose = [](const ftsort_task &, ftsort::buffer &proposal) { proposal.append(std::int64_t{1}); };
  sum.decide = [](const ftsort_task &, ftsort::view<const ftsort_proposal> all_proposals, ftsort::buffer &shared) {
    shared.append(static_cast<std::int64_t>(all_proposals.size()));
  };
  sum.plan = {{0, 0}, {1, ftsort::share_all}};
  ftsort::simulation simulated;
  simulated.failures = 1;
  simulated.store = FTSORT_STORE_RELOAD;
  const std::array<std::int64_t, 4> states = {1, 2, 3, 4};
  std::vector<ftsort::bytes> views;
  for (const std::int64_t &one : states) views.push_back({reinterpret_cast<const std::byte *>(&one), sizeof one});
  views.pop_back();
  EXPECT(group::simulate(sum, simulated, views).error().status() == FTSORT_ERR_ARGUMENT);
  views.push_back({reinterpret_cast<const std::byte *>(&states[3]), sizeof states[3]});
  for (simulated.seed = 0; simulated.seed < 20; simulated.seed++)
    for (const auto &block : value(group::simulate(sum, simulated, views)))
      EXPECT(ftsort::elements<std::int64_t>(block)[0] == 10);

  sum.absorb = [](const ftsort_task &, ftsort::bytes, ftsort::buffer &next) { next.reuse<std::int64_t>()[0] += 1; };
  sum.plan = {{0, 0}};
  for (const auto &block : value(g.run(sum, state))) EXPECT(block.size() == sizeof(std::int64_t));
  sum.absorb = [](const ftsort_task &, ftsort::bytes, ftsort::buffer &next) {
    next.resize<std::int64_t>(1);
    next.refuse();
  };
  const auto refused = g.run(sum, state);
  EXPECT(!refused && refused.error().status() == FTSORT_ERR_CALLBACK);
  sum.absorb = [](const ftsort_task &, ftsort::bytes, ftsort::buffer &next) {
    const auto elements = next.resize<std::int64_t>(std::numeric_limits<std::size_t>::max() / 8 + 2);
    EXPECT(elements.empty() && next.is_refused());
  };
  EXPECT(g.run(sum, state).error().status() == FTSORT_ERR_CALLBACK);
}

static void trees(const group &g)
{
  ftsort::tree options;
  options.sink = 1;
  options.operation = FTSORT_TREE_SUM;
  options.key = FTSORT_KEY_I64;
  const std::array<std::int64_t, 2> numbers = {1, g.rank()};
  const auto summed = value(g.merge(options, numbers));
  EXPECT(summed.empty() == (g.rank() != 1));
  for (const auto &block : summed) EXPECT(ftsort::elements<std::int64_t>(block)[0] == ranks);
  EXPECT(value(g.tree_info()).executor == 1);
  const auto share = value(g.share(options, 1000));
  EXPECT(share.first == 1000 * static_cast<std::uint64_t>(g.rank()) / ranks);
  EXPECT(share.first + share.second == 1000 * static_cast<std::uint64_t>(g.rank() + 1) / ranks);

  for (const ftsort_tree_remedy remedy : {FTSORT_TREE_DELEGATE, FTSORT_TREE_REROUTE, FTSORT_TREE_PARTITION}) {
    options.reroute = remedy;
    EXPECT(options.native().reroute == remedy);
    for (const auto &block : value(g.merge(options, numbers)))
      EXPECT(ftsort::elements<std::int64_t>(block)[0] == ranks);
  }

  options.merge = [](ftsort::bytes low, ftsort::bytes high, ftsort::buffer &merged) {
    merged.append(low);
    merged.append(high);
  };
  for (const auto &block : value(g.merge(options, numbers)))
    EXPECT(block.size() == sizeof numbers * static_cast<std::size_t>(ranks));
  options.merge = nullptr;
  auto list = mine;
  std::sort(list.begin(), list.end(), [](const star &a, const star &b) { return a.number < b.number; });
  options.merge_sorted(ftsort::order<star>::of(std::less<>{}, &star::number));
  for (const auto &block : value(g.merge(options, list))) EXPECT(ftsort::elements<star>(block).size() == all.size());

  std::vector<std::int32_t> copied(3, g.rank());
  value(g.broadcast(ftsort::tree(), 1, copied));
  EXPECT(copied == std::vector<std::int32_t>(3, 1));

  std::vector<std::int32_t> gathered;
  const auto result = value(g.sort(mine, &star::number));
  value(g.gather(options, result, [&](ftsort::view<const star> piece) {
    for (const star &s : piece) gathered.push_back(s.number);
  }));
  EXPECT(gathered.size() == (g.rank() == 1 ? all.size() : 0) && std::is_sorted(gathered.begin(), gathered.end()));
}

static void failures_and_states(const group &g)
{
  EXPECT(value(g.fault_check()) == 0);
  EXPECT(value(g.agree(0xFFu << g.rank())).flags == ((0xFFu << (ranks - 1)) & 0xFFu));
  int size = 0;
  MPI_Comm_size(value(g.comm()), &size);
  EXPECT(size == ranks && g.comm_rank(g.rank()) == g.rank() && g.ranks() == ranks);
  EXPECT(!g.is_failed(0) && g.is_failed(ranks) && !g.is_spare(0) && g.executor(0) == 0 && g.dimension() >= 1);
  EXPECT(g.partner(0, 0) == 1 && ftsort::cluster(0, 1) == (std::vector<std::int32_t>{2, 3}));
  value(g.inject(0));

  const ftsort::store states{g};
  const auto unnamed = states.open("name"); /* without a directory */
  EXPECT(!unnamed && unnamed.error().status() == FTSORT_ERR_ARGUMENT);
  const auto not_stored = g.sort_stored(mine, &star::number);
  EXPECT(!not_stored && not_stored.error().status() == FTSORT_ERR_STATE);
  value(states.put(g.rank(), std::vector<std::int32_t>{g.rank(), 7}));
  EXPECT(value(states.commit()));
  const auto kept = value(states.get<std::int32_t>(g.rank()));
  EXPECT(kept.size() == 2 && kept[0] == g.rank() && kept[1] == 7);
  value(states.clear());
  EXPECT(value(states.get<std::int32_t>(g.rank())).empty());
  const auto refused = states.put((g.rank() + 1) % ranks, std::vector<std::int32_t>{1});
  EXPECT(!refused && refused.error().status() == FTSORT_ERR_ARGUMENT);
  const std::string what = refused.error().what(), meaning = ftsort_status_text(FTSORT_ERR_ARGUMENT);
  EXPECT(what.rfind(meaning + ": ", 0) == 0 && what.find(meaning, 1) == std::string::npos);

  ftsort::monitor_options options;
  options.mode = FTSORT_MONITOR_FOREGROUND;
  options.test_handler = [] { return std::uint64_t{42}; };
  auto monitor = value(ftsort::start_monitor(g, options));
  value(g.sort(mine, &star::number));
  EXPECT(value(monitor.look(0)).recommended == 1 && !monitor.cost().has_thread);
  EXPECT(std::strstr(monitor.look(ranks).error().what(), "rank is ") != nullptr);
  value(monitor.stop());
  EXPECT(monitor.look(0).error().status() == FTSORT_ERR_ARGUMENT && monitor.cost().sent == 0);

  /* The group keeps the test procedure of a monitor whose object has gone. */
  const auto calls = std::make_shared<int>(0);
  options.test_handler = [calls] { return static_cast<std::uint64_t>(++*calls); };
  value(ftsort::start_monitor(g, std::move(options)));
  EXPECT(calls.use_count() == 2);
  value(g.sort(mine, &star::number));
}

/* A callback of C receives the caller's `user` also beside a handler. A group that another one is moved to is freed
 * before its handlers. */
static void handlers()
{
  int events = 0, lines = 0;
  ftsort::config config;
  config.user = &events;
  config.on_event = [](void *user, const ftsort_event *) { ++*static_cast<int *>(user); };
  const auto owner = std::make_shared<int>(0);
  config.log_handler = [owner, &lines](int, const char *) { lines++; };
  {
    group g = value(group::make(MPI_COMM_WORLD, config));
    value(g.sort(mine, &star::number));
    EXPECT(events > 0 && owner.use_count() == 3);
    g = value(group::make(MPI_COMM_WORLD));
    EXPECT(owner.use_count() == 2);
    value(g.sort(mine, &star::number));
  }
}

/* An object releases its group once, but not a group that belongs to a communicator. */
static void owners()
{
  const int before = releases;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  {
    group borrowed = value(group::of(copy));
    EXPECT(borrowed.ranks() == ranks);
    MPI_Comm_free(&copy); /* Releases the group. */
    group own = value(group::make(MPI_COMM_WORLD));
    own = std::move(borrowed);
    EXPECT(releases == before + 1);
  }
  EXPECT(releases == before + 1);
  {
    int refusals = 0;
    const group *leaving = nullptr;
    ftsort::config config;
    config.event_handler = [&](const ftsort_event &) {
      refusals += leaving->leave().error().status() == FTSORT_ERR_STATE;
    };
    const group own = value(group::make(MPI_COMM_WORLD, std::move(config)));
    leaving = &own;
    value(own.sort(mine, &star::number));
    EXPECT(refusals > 0);
  }
  EXPECT(releases == before + 2);
}

#ifdef __cpp_exceptions
static void exceptions()
{
  int events = 0;
  ftsort::config config;
  config.store = FTSORT_STORE_RELOAD;
  config.event_handler = [&](const ftsort_event &event) { events += event.kind == FTSORT_EVENT_ROUND; };
  config.log_handler = [](int, const char *) {};
  config.reload_handler = [](std::int32_t rank, ftsort::buffer &data) { data.append(stars_of(rank, COUNT)); };
  ftsort::group g{MPI_COMM_WORLD, std::move(config)};
  EXPECT(g.sort(mine, &star::number).total() == all.size() && events > 0);
  bool is_caught = false;
  try {
    g.quantiles(mine, std::array<double, 1>{2.0}, &star::number);
  } catch (const ftsort::error &error) {
    is_caught = error.status() == FTSORT_ERR_ARGUMENT && error.ranks().empty();
  }
  EXPECT(is_caught);
  is_caught = false;
  try {
    ftsort::rounds thrower;
    thrower.absorb = [](const ftsort_task &, ftsort::bytes, ftsort::buffer &) {
      throw std::runtime_error("the reason");
    };
    g.run(thrower, std::array<int, 1>{1});
  } catch (const ftsort::error &error) {
    is_caught = error.status() == FTSORT_ERR_CALLBACK && std::strstr(error.what(), ": the reason") != nullptr;
  }
  EXPECT(is_caught);
  EXPECT(ftsort::group::of(MPI_COMM_WORLD).ranks() == ranks);
  is_caught = false;
  try { /* Rank 0 has no memory for so many records. The other ranks return. */
    const std::uint64_t first = 0;
    g.select(mine, {&first, g.rank() == 0 ? SIZE_MAX / 2 : 1}, &star::number);
  } catch (const ftsort::error &error) {
    is_caught = error.status() == FTSORT_ERR_PEER_ARGUMENT;
  } catch (const std::length_error &) {
    is_caught = g.rank() == 0;
  }
  EXPECT(is_caught);

  for (const bool is_read : {true, false}) {
    bool is_thrown = false;
    is_caught = false;
    const auto refuse = [&is_thrown] {
      is_thrown = true;
      throw std::runtime_error("the reason");
    };
    ftsort::external files;
    files.scratch = {"/tmp"};
    files.bytes = all.size() * sizeof(star);
    files.read = [&](std::uint64_t position, void *buffer, std::size_t bytes) {
      if (is_read) refuse();
      std::memcpy(buffer, reinterpret_cast<const unsigned char *>(all.data()) + position, bytes);
      return true;
    };
    files.write = [&](std::uint64_t, const void *, std::size_t) { return refuse(), true; };
    try {
      ftsort::external_sort<star>(g, files, &star::number);
    } catch (const ftsort::error &error) {
      is_caught = error.status() == (is_read ? FTSORT_ERR_CALLBACK : FTSORT_ERR_STORE) &&
                  (std::strstr(error.what(), ": the reason") != nullptr) == is_thrown;
    }
    EXPECT(is_caught);
  }
}
#endif

static void external_sorts(const group &g)
{
  const auto brighter = sorted_stars([](const star &a, const star &b) { return a.magnitude > b.magnitude; });
  const auto *source = reinterpret_cast<const unsigned char *>(all.data());
  ftsort::external files;
  files.scratch = {"/tmp"};
  files.bytes = all.size() * sizeof(star);
  files.read = [&](std::uint64_t position, void *buffer, std::size_t bytes) {
    std::memcpy(buffer, source + position, bytes);
    return true;
  };
  files.write = [&](std::uint64_t position, const void *data, std::size_t bytes) {
    bool fine = true;
    for (std::size_t i = 0; i < bytes / sizeof(star); i++) {
      star found;
      std::memcpy(&found, static_cast<const unsigned char *>(data) + i * sizeof(star), sizeof(star));
      const star &expected = brighter[position / sizeof(star) + i];
      fine = fine && !(found.magnitude < expected.magnitude) && !(expected.magnitude < found.magnitude);
    }
    return fine;
  };
  const auto stats = value(ftsort::external_sort<star>(g, files, std::greater<>{}, &star::magnitude));
  EXPECT(stats.records == all.size() && stats.batches > 0);
  files.read = [](std::uint64_t, void *, std::size_t) { return false; };
  EXPECT(ftsort::external_sort<star>(g, files, &star::number).error().status() == FTSORT_ERR_CALLBACK);
}

int main(int argc, char **argv)
{
  EXPECT(ftsort::prepare());
  ftsort::allow_faults();
  MPI_Init(&argc, &argv);
  EXPECT(!ftsort::prepare() && ftsort::version().major == 0 && *ftsort::build_info() != '\0');
  auto made = group::make(MPI_COMM_WORLD);
  EXPECT(made.has_value());
  static const group g = std::move(*made); /* leave ends the program by exit, which destroys static objects. */
  ranks = g.ranks();
  mine = stars_of(g.rank(), COUNT);
  all = all_stars(ranks, COUNT);
  orders(g);
  inputs_and_arrays(g);
  comparators(g, mine);
  queries(g);
  external_sorts(g);
  files_of_external_sorts(g, all);
  members_of_options();
  base_classes(g);
  converted_and_constant_keys(g);
  total_order(g);
  packages(g);
  rounds(g);
  trees(g);
  failures_and_states(g);
  handlers();
  owners();
#ifdef __cpp_exceptions
  exceptions();
#endif
  if (g.rank() == 0) std::puts("objects: fine");
  is_left = true;
  value(g.leave());
}
