/* Orders that compile (REFUSED is 0), and orders that the headers refuse: 1 to 5 would compare addresses, and 6 and 7
 * have keys of long double, which would not be in the total order. 8 is a list in place of a view: its 0
 * would be NULL. */
#include <cstdint>
#include <functional>
#include <string_view>

#include "ftsort.hpp"

struct star {
  float magnitude;
  char name[12];
};

#if REFUSED == 0
const std::uint64_t positions[] = {0, 2};
std::vector<int> selected(const ftsort::group &g, const std::vector<int> &numbers)
{
  return g.select(numbers, {positions, 2});
}

ftsort::order<star> orders[] = {
    ftsort::order<star>::of(std::less<>{}, &star::name),
    ftsort::order<star>::of(std::greater<>{}, &star::magnitude),
    ftsort::order<star>::of(std::less<>{}, [](const star &s) { return std::string_view(s.name); }),
    ftsort::order<star>::of(std::less<std::string_view>{}, [](const star &s) { return s.name; }),
    ftsort::order<star>::of([](long double a, long double b) { return a < b; }, &star::magnitude),
};
#elif REFUSED == 1
auto by_pointer = ftsort::order<star>::of(std::less<>{}, [](const star &s) { return s.name; });
#elif REFUSED == 2
auto by_array = ftsort::order<star>::of(std::greater<>{}, [](const star &s) -> const auto & { return s.name; });
#elif REFUSED == 3
auto by_typed_pointer = ftsort::order<star>::of(std::less<const char *>{}, [](const star &s) { return s.name; });
#elif REFUSED == 4
using name = char[12];
auto by_record = ftsort::order<name>::of(std::greater<>{});
#elif REFUSED == 5
ftsort::sorted<star> sorted(const ftsort::group &g, const std::vector<star> &stars)
{
  return g.sort(stars, [](const star &s) { return s.name; });
}
#elif REFUSED == 6
auto by_long_double = ftsort::order<star>::of(std::less<>{}, [](const star &s) -> long double { return s.magnitude; });
#elif REFUSED == 7
struct measure {
  long double value;
};
auto by_long_member = ftsort::order<measure>::of(std::greater<>{}, &measure::value);
#elif REFUSED == 8
std::vector<int> selected(const ftsort::group &g, const std::vector<int> &numbers) { return g.select(numbers, {0, 2}); }
#endif
