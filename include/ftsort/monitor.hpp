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

/** The monitor of a group, which must outlive this object and not be moved. The group keeps the test procedure.
 * A group of `of`, which goes on with the monitor when its object has ended, keeps it until the process ends. */
template <class Policy>
class monitor {
  template <class T>
  using returned = typename Policy::template result<T>;

 public:
  /** Starts to monitor the ranks of a group (ftsort_monitor_start). [C] */
  static returned<monitor> start(const basic_group<Policy> &of_group, monitor_options options = {})
  {
    const auto kept = std::make_shared<monitor_options>(std::move(options));
    ftsort_monitor_options native_options = *kept;
    if (kept->test_handler) {
      native_options.user = kept.get();
      native_options.test = [](void *self) noexcept { return static_cast<monitor_options *>(self)->test_handler(); };
    }
    const ftsort_monitor *native = nullptr;
    const ftsort_status status = ftsort_monitor_start(of_group.native(), &native_options, &native);
    if (status == FTSORT_OK) of_group.keep(kept);
    return of_group.finish(status, [&] { return monitor(of_group, native); });
  }

  monitor(monitor &&) = default;
  monitor &operator=(monitor &&) = default;

  /** Stops the monitor, which then has no knowledge and no cost (ftsort_monitor_stop). [C] */
  returned<void> stop()
  {
    const ftsort_status status = ftsort_monitor_stop(group_->native());
    /* After this error nothing has changed, after any other one the monitor has been released. */
    if (status != FTSORT_ERR_STATE) native_ = nullptr;
    return group_->finish(status);
  }

  /** Returns the knowledge about a rank; any thread may call it (ftsort_monitor_get_view). [L] */
  returned<ftsort_monitor_view> look(std::int32_t rank) const
  {
    ftsort_monitor_view known = FTSORT_MONITOR_VIEW_INIT;
    const ftsort_status status = ftsort_monitor_get_view(native_, rank, &known);
    return detail::finish<Policy>(nullptr, status, [&] { return known; });
  }

  /** Returns the cost so far; any thread may call it (ftsort_monitor_cost). [L] */
  monitor_cost cost() const
  {
    monitor_cost paid{};
    paid.has_thread = ftsort_monitor_cost(native_, &paid.sent, &paid.answered) == 1;
    return paid;
  }

 private:
  monitor(const basic_group<Policy> &of_group, const ftsort_monitor *native) : group_(&of_group), native_(native) {}

  const basic_group<Policy> *group_;
  const ftsort_monitor *native_;
};

/** Starts to monitor the ranks of a group (monitor::start). [C] */
template <class Policy>
auto start_monitor(const basic_group<Policy> &of_group, monitor_options options = {})
{
  return monitor<Policy>::start(of_group, std::move(options));
}

}  // namespace ftsort

#endif /* FTSORT_MONITOR_HPP */
