/* Orders that compile (REFUSED is 0), and orders that the headers refuse because they would compare addresses. */
#include <functional>
#include <string_view>

#include "ftsort.hpp"

struct star {
  float magnitude;
  char name[12];
};

#if REFUSED == 0
ftsort::order<star> orders[] = {
    ftsort::order<star>::of(std::less<>{}, &star::name),
    ftsort::order<star>::of(std::greater<>{}, &star::magnitude),
    ftsort::order<star>::of(std::less<>{}, [](const star &s) { return std::string_view(s.name); }),
    ftsort::order<star>::of(std::less<std::string_view>{}, [](const star &s) { return s.name; }),
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
#endif
