/* external.hpp: sorts of files that need not fit into memory (ftsort_external.h). A part of ftsort.hpp. */
#ifndef FTSORT_EXTERNAL_HPP
#define FTSORT_EXTERNAL_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "group.hpp"

namespace ftsort {

/** Figures of an external sort on this rank; the members of ftsort_external_stats. */
using external_stats = ftsort_external_stats;

/** The files of an external sort. Either `sources` or `read`, and either `output` or `write`; the members of
 * ftsort_external have the details. */
struct external {
  std::vector<std::string> sources = {};
  std::string output = {};
  std::vector<std::string> scratch = {};
  std::size_t memory_bytes = 0;
  bool resume = false;
  bool sync = false;
  /** Fills a buffer of `bytes` bytes with those of the source from `position` on. If it returns false or throws, the sort
   * fails with FTSORT_ERR_CALLBACK. */
  std::function<bool(std::uint64_t position, void *buffer, std::size_t bytes)> read = {};
  std::uint64_t bytes = 0;
  std::uint64_t identity = 0;
  std::uint64_t source_offset = 0;
  std::uint64_t output_offset = 0;
  std::uint64_t output_parts = 0;
  /** Receives `bytes` sorted bytes for `position` of the output. If it returns false or throws, the sort fails with
   * FTSORT_ERR_STORE. */
  std::function<bool(std::uint64_t position, const void *data, std::size_t bytes)> write = {};
};

/** Sorts records of type `T`, and returns the figures of this rank (ftsort_external_sort). [C] */
template <class T, class Policy, class... Key>
auto external_sort(const basic_group<Policy> &of_group, const external &files, Key... key)
{
  const auto pointers = [](const std::vector<std::string> &paths) {
    std::vector<const char *> of_c;
    for (const std::string &path : paths) of_c.push_back(path.c_str());
    return of_c;
  };
  const std::vector<const char *> sources = pointers(files.sources), scratch = pointers(files.scratch);
  const order<T> by = detail::make_order<T>(std::move(key)...);
  const ftsort_record record = by.native();
  ftsort_external native = FTSORT_EXTERNAL_INIT;
  native.sources = sources.empty() ? nullptr : sources.data();
  native.source_count = sources.size();
  native.output = files.output.empty() ? nullptr : files.output.c_str();
  native.scratch = scratch.empty() ? nullptr : scratch.data();
  native.scratch_count = scratch.size();
  native.memory_bytes = files.memory_bytes;
  native.resume = files.resume;
  native.sync = files.sync;
  native.bytes = files.bytes;
  native.identity = files.identity;
  native.source_offset = files.source_offset;
  native.output_offset = files.output_offset;
  native.output_parts = files.output_parts;
  native.user = const_cast<external *>(&files);
  if (files.read) {
    native.read = [](void *user, std::uint64_t position, void *buffer, std::size_t size) noexcept {
      return detail::guarded([&] { return static_cast<const external *>(user)->read(position, buffer, size) ? 0 : 1; });
    };
  }
  if (files.write) {
    native.write = [](void *user, std::uint64_t position, const void *data, std::size_t size) noexcept {
      return detail::guarded([&] { return static_cast<const external *>(user)->write(position, data, size) ? 0 : 1; });
    };
  }
  external_stats stats = FTSORT_EXTERNAL_STATS_INIT;
  const ftsort_status status = ftsort_external_sort(of_group.native(), &record, &native, &stats);
  return of_group.finish(status, [&] { return stats; });
}

}  // namespace ftsort

#endif /* FTSORT_EXTERNAL_HPP */
