/* ftsort.hpp: ftsort from C++17 and later. Header-only, over the C library; the C++ documentation is docs/cpp.md.
 *
 *   ftsort::group g{MPI_COMM_WORLD};
 *   auto sorted = g.sort(stars, std::greater<>{}, &star::magnitude);   // ranks may fail in here
 *   for (const auto &block : sorted)                                   // the blocks of this rank, without a copy
 *     for (const star &s : block) use(s);
 *
 * `ftsort::group` throws `ftsort::error` for every status but FTSORT_OK. `ftsort::nothrow_group` has the same functions,
 * and returns `ftsort::expected<T>`; it is the only group with -fno-exceptions. Functions are collective where the C
 * functions are. The comments name these functions, and the C headers have the details.
 */
#ifndef FTSORT_HPP
#define FTSORT_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "ftsort.hpp needs C++17: compile with -std=c++17 or later, or use ftsort_all.h"
#endif

#include "ftsort/callbacks.hpp"
#include "ftsort/error.hpp"
#include "ftsort/external.hpp"
#include "ftsort/group.hpp"
#include "ftsort/monitor.hpp"
#include "ftsort/order.hpp"
#include "ftsort/result.hpp"
#include "ftsort/store.hpp"

#endif /* FTSORT_HPP */
