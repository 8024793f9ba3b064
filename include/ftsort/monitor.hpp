/* monitor.hpp: detects slow ranks (ftsort_monitor.h). A part of ftsort.hpp. */
#ifndef FTSORT_MONITOR_HPP
#define FTSORT_MONITOR_HPP

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "group.hpp"

namespace ftsort {

/** Options of a monitor: `ftsort_monitor_options` with its defaults. */
struct monitor_options : ftsort_monitor_options {
  monitor_options() : ftsort_monitor_options FTSORT_MONITOR_OPTIONS_INIT {}

  /** The test procedure, which must not throw (`ftsort_test_fn`). */
  std::function<std::uint64_t()> test_handler;
};

/** The cost of a monitor on this rank. */
struct monitor_cost {
  bool has_thread;
  std::uint64_t sent, answered;
};

/** The monitor of a group, which must outlive this object and not be moved. It must live until `stop`, because it owns the
 * test procedure. */
template <class Policy>
class monitor {
  template <class T>
  using returned = typename Policy::template result<T>;

 public:
  /** Starts to monitor the ranks of a group (ftsort_monitor_start). [C] */
  static returned<monitor> start(const basic_group<Policy> &group, monitor_options options = {})
  {
    auto kept = std::make_unique<monitor_options>(std::move(options));
    ftsort_monitor_options native_options = *kept;
    if (kept->test_handler) {
      native_options.user = kept.get();
      native_options.test = [](void *self) noexcept { return static_cast<monitor_options *>(self)->test_handler(); };
    }
    const ftsort_monitor *native = nullptr;
    const ftsort_status status = ftsort_monitor_start(group.native(), &native_options, &native);
    return group.finish(status, [&] { return monitor(group, native, std::move(kept)); });
  }

  /** Stops the monitor (ftsort_monitor_stop). [C] */
  returned<void> stop() const { return group_->finish(ftsort_monitor_stop(group_->native())); }

  /** Returns the knowledge about a rank; any thread may call it (ftsort_monitor_get_view). [L] */
  returned<ftsort_monitor_view> look(std::int32_t rank) const
  {
    ftsort_monitor_view known = FTSORT_MONITOR_VIEW_INIT;
    const ftsort_status status = ftsort_monitor_get_view(native_, rank, &known);
    return group_->finish(status, [&] { return known; });
  }

  /** Returns the cost so far; any thread may call it (ftsort_monitor_cost). [L] */
  monitor_cost cost() const
  {
    monitor_cost paid{};
    paid.has_thread = ftsort_monitor_cost(native_, &paid.sent, &paid.answered) == 1;
    return paid;
  }

 private:
  monitor(const basic_group<Policy> &group, const ftsort_monitor *native, std::unique_ptr<monitor_options> options)
      : group_(&group), native_(native), options_(std::move(options))
  {
  }

  const basic_group<Policy> *group_;
  const ftsort_monitor *native_;
  std::unique_ptr<monitor_options> options_;
};

/** Starts to monitor the ranks of a group (monitor::start). [C] */
template <class Policy>
auto start_monitor(const basic_group<Policy> &group, monitor_options options = {})
{
  return monitor<Policy>::start(group, std::move(options));
}

}  // namespace ftsort

#endif /* FTSORT_MONITOR_HPP */
