/* callbacks.hpp: configurations, algorithms of the caller (rounds) and trees, with callbacks of any callable type. A
 * part of ftsort.hpp.
 *
 * A callback that fills a `buffer` refuses by buffer::refuse, by an exception, or if the buffer could not grow: the
 * call then ends with FTSORT_ERR_CALLBACK on all ranks. group::gather and external_sort say what an exception in their
 * callbacks does. An exception in any other callback ends the program. */
#ifndef FTSORT_CALLBACKS_HPP
#define FTSORT_CALLBACKS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "error.hpp"
#include "order.hpp"

namespace ftsort {

/** Bytes that a callback receives. */
using bytes = view<const std::byte>;

/** Growable bytes that a callback fills; valid during the callback. */
class buffer {
 public:
  explicit buffer(ftsort_buffer *native) : native_(native) {}

  /** Gives the buffer a size, filled with zeros, and returns its elements; none if memory is exhausted
   * (ftsort_buffer_resize). */
  template <class T>
  view<T> resize(std::size_t count)
  {
    static_assert(std::is_trivially_copyable_v<T>, "a buffer has elements of a trivially copyable type");
    const bool is_possible = count <= std::numeric_limits<std::size_t>::max() / sizeof(T);
    T *data = is_possible ? static_cast<T *>(ftsort_buffer_resize(native_, count * sizeof(T))) : nullptr;
    if (data == nullptr) is_refused_ = true;
    return view<T>(data, data == nullptr ? 0 : count);
  }

  /** Appends the elements of a contiguous range (ftsort_buffer_append). */
  template <class Range, std::enable_if_t<detail::is_contiguous<const Range>::value, int> = 0>
  void append(const Range &elements)
  {
    using element = detail::element<const Range>;
    static_assert(std::is_trivially_copyable_v<element>, "a buffer has elements of a trivially copyable type");
    note(ftsort_buffer_append(native_, std::data(elements), std::size(elements) * sizeof(element)));
  }

  /** Appends one value. */
  template <class T, std::enable_if_t<!detail::is_contiguous<const T>::value, int> = 0>
  void append(const T &value)
  {
    append(view<const T>(&value, 1));
  }

  /** In `emit`: sends a part of the state without copying it (ftsort_buffer_pass). */
  void pass(std::size_t offset, std::size_t size) { note(ftsort_buffer_pass(native_, offset, size)); }

  /** In `absorb`: makes the message the next state, to be changed in place (ftsort_buffer_reuse). */
  template <class T>
  view<T> reuse()
  {
    std::size_t size = 0;
    T *data = static_cast<T *>(ftsort_buffer_reuse(native_, &size));
    if (data == nullptr) is_refused_ = true;
    return view<T>(data, data == nullptr ? 0 : size / sizeof(T));
  }

  /** Makes the callback refuse. */
  void refuse() { is_refused_ = true; }
  bool is_refused() const { return is_refused_; }

 private:
  void note(int failed)
  {
    if (failed != 0) is_refused_ = true;
  }

  ftsort_buffer *native_;
  bool is_refused_ = false;
};

/** Views bytes as elements of a type. The bytes of a task, a proposal or a message are aligned for any type. */
template <class T>
view<const T> elements(bytes raw)
{
  return view<const T>(reinterpret_cast<const T *>(raw.data()), raw.size() / sizeof(T));
}
template <class T>
view<const T> elements(const void *data, std::size_t size)
{
  return view<const T>(static_cast<const T *>(data), size / sizeof(T));
}

namespace detail {

/** Runs a callback of the caller, and returns 0, or 1 if it throws: exceptions must not reach the C library. The text of
 * the exception becomes a part of the error of the call. */
template <class Body>
int guarded(Body body) noexcept
{
#ifdef __cpp_exceptions
  try {
    const int refused = body();
    if (refused != 0) callback_text().clear();
    return refused;
  } catch (const std::exception &thrown) {
    try {
      callback_text() = thrown.what();
    } catch (...) {
      callback_text().clear();
    }
    return 1;
  } catch (...) {
    callback_text().clear();
    return 1;
  }
#else
  return body();
#endif
}

/** Runs a callback that fills a buffer. */
template <class Body>
int filled(ftsort_buffer *native, Body body) noexcept
{
  return guarded([&] {
    buffer target(native);
    body(target);
    return target.is_refused() ? 1 : 0;
  });
}

inline bytes raw(const void *data, std::size_t size)
{
  return bytes(static_cast<const std::byte *>(data), size);
}

}  // namespace detail

/** The configuration of a group: `ftsort_config` with its defaults, and handlers of any callable type. */
struct config : ftsort_config {
  config() : ftsort_config FTSORT_CONFIG_INIT {}

  /** Receives events (`ftsort_event_fn`). */
  std::function<void(const ftsort_event &)> event_handler;
  /** Receives lines of text, with their level (`ftsort_log_fn`). */
  std::function<void(int, const char *)> log_handler;
  /** Returns the input of a rank again (`ftsort_reload_fn`). */
  std::function<void(std::int32_t, buffer &)> reload_handler;

  /** Returns the configuration of C, which uses this object as long as the group exists. */
  ftsort_config native()
  {
    ftsort_config made = *this;
    if (!event_handler && !log_handler && !reload_handler) return made;
    made.user = this;
    /* A callback of C beside a handler still receives the caller's `user`. */
    if (event_handler || on_event != nullptr) {
      made.on_event = [](void *self, const ftsort_event *event) noexcept {
        const config &given = *static_cast<config *>(self);
        given.event_handler ? given.event_handler(*event) : given.on_event(given.user, event);
      };
    }
    if (log_handler || on_log != nullptr) {
      made.on_log = [](void *self, int level, const char *line) noexcept {
        const config &given = *static_cast<config *>(self);
        given.log_handler ? given.log_handler(level, line) : given.on_log(given.user, level, line);
      };
    }
    if (reload_handler || reload != nullptr) {
      made.reload = [](void *self, std::int32_t rank, ftsort_buffer *data) noexcept {
        const config &given = *static_cast<config *>(self);
        if (!given.reload_handler) return given.reload(given.user, rank, data);
        return detail::filled(data, [&](buffer &target) { given.reload_handler(rank, target); });
      };
    }
    return made;
  }
};

/** An algorithm of the caller on the virtual hypercube (ftsort_rounds_run). The handlers must be pure, and their
 * rules and defaults are those of the callbacks in ftsort_rounds.h. */
struct rounds {
  std::vector<ftsort_round> plan;
  bool ascending = false;
  bool begin_all = false;
  std::uint32_t share_limit = 0;
  /** After how many rounds states are stored under the name of store::open; 0: never. */
  std::uint32_t store_every = 0;
  std::function<void(std::int32_t node, buffer &state)> begin;
  std::function<void(const ftsort_task &, buffer &proposal)> propose;
  std::function<void(const ftsort_task &, view<const ftsort_proposal>, buffer &shared)> decide;
  std::function<void(const ftsort_task &, buffer &outbox)> emit;
  std::function<void(const ftsort_task &, bytes inbox, buffer &next)> absorb;

  /** Returns the algorithm of C, which uses this object. */
  ftsort_rounds native() const
  {
    ftsort_rounds made = FTSORT_ROUNDS_INIT;
    made.plan = plan.empty() ? nullptr : plan.data();
    made.round_count = plan.size();
    made.ascending = ascending ? 1 : 0;
    made.begin_all = begin_all ? 1 : 0;
    made.share_limit = share_limit;
    made.store_every = store_every;
    made.user = const_cast<rounds *>(this);
    if (begin) made.begin = &rounds::call_begin;
    if (propose) made.propose = &rounds::call_propose;
    if (decide) made.decide = &rounds::call_decide;
    if (emit) made.emit = &rounds::call_emit;
    if (absorb) made.absorb = &rounds::call_absorb;
    return made;
  }

 private:
  static const rounds &of(void *user) { return *static_cast<const rounds *>(user); }

  static int call_begin(void *user, std::int32_t node, ftsort_buffer *state) noexcept
  {
    return detail::filled(state, [&](buffer &target) { of(user).begin(node, target); });
  }
  static int call_propose(void *user, const ftsort_task *task, ftsort_buffer *proposal) noexcept
  {
    return detail::filled(proposal, [&](buffer &target) { of(user).propose(*task, target); });
  }
  static int call_decide(void *user, const ftsort_task *task, const ftsort_proposal *proposals, std::size_t count,
                         ftsort_buffer *shared) noexcept
  {
    const view<const ftsort_proposal> all(proposals, count);
    return detail::filled(shared, [&](buffer &target) { of(user).decide(*task, all, target); });
  }
  static int call_emit(void *user, const ftsort_task *task, ftsort_buffer *outbox) noexcept
  {
    return detail::filled(outbox, [&](buffer &target) { of(user).emit(*task, target); });
  }
  static int call_absorb(void *user, const ftsort_task *task, const void *inbox, std::size_t size,
                         ftsort_buffer *next) noexcept
  {
    return detail::filled(next, [&](buffer &target) { of(user).absorb(*task, detail::raw(inbox, size), target); });
  }
};

/** Options of ftsort_rounds_simulate. */
struct simulation : ftsort_simulation_options {
  simulation() : ftsort_simulation_options FTSORT_SIMULATION_OPTIONS_INIT {}
};

/** Options of tree collectives (`ftsort_tree_options`). */
struct tree {
  /** A rank that receives the result; without one the tree chooses a node. */
  std::optional<std::int32_t> sink;
  /** The operation of group::merge, and the kind of its numbers (`ftsort_key`). */
  ftsort_tree_op operation = FTSORT_TREE_CONCATENATE;
  std::int32_t key = 0;
  bool ordered = false;
  /** The way around a faulty link. */
  ftsort_tree_remedy reroute = FTSORT_TREE_DELEGATE;
  std::uint32_t detect_ms = 0;
  /** Pairs of ranks that must not send to each other on the way along the tree. */
  std::vector<std::array<std::int32_t, 2>> links;
  /** Merges two contributions; selects FTSORT_TREE_CALL. */
  std::function<void(bytes low, bytes high, buffer &merged)> merge;

  /** Merges sorted lists of records of this order (FTSORT_TREE_SORTED). */
  template <class T>
  void merge_sorted(order<T> records)
  {
    operation = FTSORT_TREE_SORTED;
    const auto kept = std::make_shared<const order<T>>(std::move(records));
    record_ = std::make_shared<const ftsort_record>(kept->native());
    records_ = kept;
  }

  /** Returns the options of C, which use this object. */
  ftsort_tree_options native() const
  {
    static_assert(sizeof(std::array<std::int32_t, 2>) == 2 * sizeof(std::int32_t), "pairs without gaps");
    ftsort_tree_options made = FTSORT_TREE_OPTIONS_INIT;
    made.has_sink = sink.has_value() ? 1 : 0;
    made.sink = sink.value_or(0);
    made.operation = merge ? FTSORT_TREE_CALL : operation;
    made.key = key;
    made.ordered = ordered ? 1 : 0;
    made.reroute = reroute;
    made.detect_ms = detect_ms;
    made.link_count = links.size();
    made.links = links.empty() ? nullptr : links.front().data();
    made.record = made.operation == FTSORT_TREE_SORTED ? record_.get() : nullptr;
    if (merge) {
      made.user = const_cast<tree *>(this);
      made.merge = &tree::call_merge;
    }
    return made;
  }

 private:
  static int call_merge(void *user, const void *low, std::size_t low_size, const void *high, std::size_t high_size,
                        ftsort_buffer *merged) noexcept
  {
    return detail::filled(merged, [&](buffer &target) {
      static_cast<const tree *>(user)->merge(detail::raw(low, low_size), detail::raw(high, high_size), target);
    });
  }

  std::shared_ptr<const void> records_;
  std::shared_ptr<const ftsort_record> record_;
};

}  // namespace ftsort

#endif /* FTSORT_CALLBACKS_HPP */
