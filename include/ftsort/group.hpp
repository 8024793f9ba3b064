/* group.hpp: groups of ranks: sorts, queries, rounds, trees and failures. A part of ftsort.hpp. */
#ifndef FTSORT_GROUP_HPP
#define FTSORT_GROUP_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "callbacks.hpp"
#include "error.hpp"
#include "order.hpp"
#include "result.hpp"

namespace ftsort {

/** The numbers that ftsort_agree returns. */
struct agreement {
  std::uint32_t flags;
  std::size_t new_failures;
};

template <class Policy>
class monitor;

/** A group of ranks. Moved, not copied. The destructor is ftsort_free, except for a group of `of`; after failures use
 * `leave`.
 *
 * `Key` arguments describe an order: nothing for numbers, a comparator, a pointer to a member, a projection, a
 * comparator and one of the two, or an `order`. `Range` is a contiguous range of a trivially copyable type.
 *
 * Lent records: `sort`, `sort_on`, `sort_stored`, `unique` and `group_by` copy no records. After FTSORT_ERR_MPI and
 * FTSORT_ERR_INTERNAL MPI may still read them, so they must stay allocated and unchanged until the process ends:
 * declare their container outside of the try block, and end the process in the handler. */
template <class Policy>
class basic_group {
  static_assert(Policy::is_available,
                "ftsort::group throws exceptions, which -fno-exceptions disables: use ftsort::nothrow_group");

  template <class T>
  using returned = typename Policy::template result<T>;

 public:
  basic_group(basic_group &&) noexcept = default;
  basic_group &operator=(basic_group &&other) noexcept
  {
    native_ = std::move(other.native_); /* First, because ftsort_free still calls the handlers. */
    options_ = std::move(other.options_);
    monitor_options_ = std::move(other.monitor_options_);
    return *this;
  }

  /** Creates a group of the ranks of `comm`, and throws if that fails (ftsort_init). [C] */
  explicit basic_group(MPI_Comm comm, config options = {})
  {
    static_assert(std::is_same_v<Policy, throwing>, "a constructor returns no status: use nothrow_group::make");
    const ftsort_status status = start(comm, std::move(options));
    if (status != FTSORT_OK) detail::fail(error::last(nullptr, status));
  }

  /** Creates a group of the ranks of `comm` (ftsort_init). [C] */
  static returned<basic_group> make(MPI_Comm comm, config options = {})
  {
    basic_group group{empty{}};
    const ftsort_status status = group.start(comm, std::move(options));
    return detail::finish<Policy>(nullptr, status, [&] { return std::move(group); });
  }

  /** Returns the group that ftsort_sort uses on `comm`, which owns it (ftsort_group_of). The object must not be used
   * after `comm` is freed or MPI is finalised, but it may be destroyed later. [C] */
  static returned<basic_group> of(MPI_Comm comm)
  {
    basic_group group{empty{}};
    handle *native = nullptr;
    const ftsort_status status = ftsort_group_of(comm, &native);
    group.native_ = {native, release{false}};
    return detail::finish<Policy>(nullptr, status, [&] { return std::move(group); });
  }

  /** Sorts the numbers of all ranks of `comm`, which are lent, with the group of `comm` (ftsort_sort). [C] */
  template <class Range, class T = std::remove_cv_t<detail::element<const Range>>>
  static returned<sorted<T>> sort_on(MPI_Comm comm, const Range &numbers, MPI_Datatype type = detail::mpi_type<T>())
  {
    ftsort_result *native = nullptr;
    ftsort_record record = {};
    if (ftsort_record_of_type(type, &record) == FTSORT_OK && record.record_bytes != sizeof(T)) {
      /* The other ranks are in the call already: an invalid argument lets them return. */
      ftsort_sort(comm, nullptr, 1, type, &native);
      return Policy::template refuse<sorted<T>>(detail::other_size(record.record_bytes, sizeof(T)));
    }
    const ftsort_status status = ftsort_sort(comm, std::data(numbers), std::size(numbers), type, &native);
    handle *owner = nullptr; /* The group of `comm` knows the ranks that lost data. */
    if (status == FTSORT_ERR_DATA_LOST) ftsort_group_of(comm, &owner);
    return detail::finish<Policy>(owner, status, [&] { return sorted<T>(native); });
  }

  /** Describes the elements of an MPI datatype as records of type `T` (ftsort_record_of_type). [L] */
  template <class T>
  static returned<order<T>> order_of_type(MPI_Datatype type)
  {
    ftsort_record record = {};
    const ftsort_status status = ftsort_record_of_type(type, &record);
    if (status == FTSORT_OK && record.record_bytes != sizeof(T))
      return Policy::template refuse<order<T>>(detail::other_size(record.record_bytes, sizeof(T)));
    return detail::finish<Policy>(nullptr, status, [&] { return order<T>::of_record(record); });
  }

  /** Runs an algorithm on simulated ranks that fail, with a state for each of them, or none if `algorithm.begin_all` is
   * true (ftsort_rounds_simulate). [L] */
  static returned<sorted<std::byte>> simulate(const rounds &algorithm, const simulation &options,
                                              const std::vector<bytes> &states)
  {
    const std::size_t count = options.ranks == 0 ? 4 : options.ranks;
    if (!algorithm.begin_all && states.size() != count)
      return Policy::template refuse<sorted<std::byte>>(
          error(FTSORT_ERR_ARGUMENT, {}, "there are " + std::to_string(states.size()) + " states for " +
                                             std::to_string(count) + " ranks: pass one state for each rank"));
    std::vector<const void *> data;
    std::vector<std::size_t> sizes;
    for (const bytes &state : states) {
      data.push_back(state.data());
      sizes.push_back(state.size());
    }
    const ftsort_rounds native_rounds = algorithm.native();
    ftsort_result *native = nullptr;
    const ftsort_status status =
        ftsort_rounds_simulate(&native_rounds, &options, data.data(), sizes.data(), &native);
    return detail::finish<Policy>(nullptr, status, [&] { return sorted<std::byte>(native); });
  }

  // ---- Sorting ---------------------------------------------------------------------------------------------

  /** Sorts the records of all ranks, which are lent (ftsort_run). [C] */
  template <class Range, class... Key>
  auto sort(const Range &records, Key... key) const
  {
    return with_records(&ftsort_run, records, std::move(key)...);
  }

  /** Sorts a protected input, in its order or in another (ftsort_run_protected). [C] */
  template <class T, class... Key>
  returned<sorted<T>> sort(const input<T> &records, Key... key) const
  {
    ftsort_result *native = nullptr;
    if constexpr (sizeof...(Key) == 0) {
      const ftsort_status status = ftsort_run_protected(get(), records.native(), nullptr, &native);
      return sorted_of<T>(status, native, records.records());
    } else {
      const order<T> by = detail::make_order<T>(std::move(key)...);
      const ftsort_record record = by.native();
      const ftsort_status status = ftsort_run_protected(get(), records.native(), &record, &native);
      return sorted_of<T>(status, native, by);
    }
  }

  /** Sorts the records of all ranks, which are lent, and stores the result under the name of ftsort::store::open, under
   * which a later call, also of another job, finds it (ftsort_run_stored). [C] */
  template <class Range, class... Key>
  auto sort_stored(const Range &records, Key... key) const
  {
    return with_records(&ftsort_run_stored, records, std::move(key)...);
  }

  /** Sorts several arrays, each by itself, in one order (ftsort_run_many). [C] */
  template <class T, class... Key>
  returned<std::vector<sorted<T>>> sort_many(const std::vector<view<const T>> &arrays, Key... key) const
  {
    const order<T> by = detail::make_order<T>(std::move(key)...);
    const ftsort_record record = by.native();
    std::vector<ftsort_array> described;
    for (const view<const T> &array : arrays) described.push_back({&record, array.data(), array.size()});
    std::vector<ftsort_result *> natives(arrays.size());
    const ftsort_status status = ftsort_run_many(get(), described.data(), described.size(), natives.data());
    return finish(status, [&] {
      std::vector<sorted<T>> results;
      for (ftsort_result *native : natives) results.emplace_back(native, by.comparator());
      return results;
    });
  }

  /** Protects an input before it is sorted (ftsort_protect). [C] */
  template <class Range, class... Key>
  auto protect(const Range &records, Key... key) const
  {
    using T = std::remove_cv_t<detail::element<const Range>>;
    order<T> by = detail::make_order<T>(std::move(key)...);
    const ftsort_record record = by.native();
    ftsort_input *native = nullptr;
    const ftsort_status status = ftsort_protect(get(), &record, std::data(records), std::size(records), &native);
    return finish(status, [&] { return input<T>(native, std::move(by)); });
  }

  /** Replaces the records of this rank in a protected input (ftsort_input_update). [C] */
  template <class T>
  returned<void> update(const input<T> &target, view<const T> records) const
  {
    return finish(ftsort_input_update(get(), target.native(), records.data(), records.size()));
  }
  template <class T, class Range>
  returned<void> update(const input<T> &target, const Range &records) const
  {
    return update(target, view<const T>(records));
  }

  /** Selects the algorithm of the sorts that follow (ftsort_set_algorithm). [C] */
  returned<void> set_algorithm(ftsort_algorithm algorithm, ftsort_pivot pivot = FTSORT_PIVOT_SAMPLED) const
  {
    return finish(ftsort_set_algorithm(get(), algorithm, pivot));
  }

  // ---- Queries ---------------------------------------------------------------------------------------------

  /** Sorts keys, and moves the value beside each key along (ftsort_sort_by_key). [C] */
  template <class Keys, class Values, class... Key>
  auto sort_by_key(const Keys &keys, const Values &values, Key... key) const
  {
    using K = std::remove_cv_t<detail::element<const Keys>>;
    using V = std::remove_cv_t<detail::element<const Values>>;
    static_assert(std::is_trivially_copyable_v<V>, "values move to other processes byte by byte");
    const order<K> by = detail::make_order<K>(std::move(key)...);
    const ftsort_record record = by.native();
    ftsort_result *native = nullptr;
    if (std::size(keys) != std::size(values)) {
      // The C function has one count. Its call without a record tells the other ranks of the invalid argument.
      ftsort_sort_by_key(get(), nullptr, nullptr, nullptr, 0, 0, &native);
      return Policy::template refuse<table<K, V>>(
          error(FTSORT_ERR_ARGUMENT, {}, "keys has " + std::to_string(std::size(keys)) + " elements, and values has " +
                                             std::to_string(std::size(values)) + ": pass one value for each key"));
    }
    const ftsort_status status = ftsort_sort_by_key(get(), &record, std::data(keys), std::data(values), sizeof(V),
                                                    std::size(keys), &native);
    return finish(status, [&] { return table<K, V>(native, by.comparator()); });
  }

  /** Sorts the positions of records by the records (ftsort_argsort). [C] */
  template <class Range, class... Key>
  auto argsort(const Range &records, Key... key) const
  {
    return with_records<std::uint64_t>(&ftsort_argsort, records, std::move(key)...);
  }

  /** Computes the position of each record in the sorted order (ftsort_positions). [C] */
  template <class Range, class... Key>
  auto positions(const Range &records, Key... key) const
  {
    return with_records<std::uint64_t>(&ftsort_positions, records, std::move(key)...);
  }

  /** Finds the records at given positions of the sorted order (ftsort_select). [C] */
  template <class Range, class... Key>
  auto select(const Range &records, view<const std::uint64_t> positions, Key... key) const
  {
    return found(&ftsort_select, records, positions, std::move(key)...);
  }

  /** Finds the records of quantiles (ftsort_quantiles). [C] */
  template <class Range, class... Key>
  auto quantiles(const Range &records, view<const double> fractions, Key... key) const
  {
    return found(&ftsort_quantiles, records, fractions, std::move(key)...);
  }

  /** Sorts the first `most` records of the sorted order (ftsort_top). [C] */
  template <class Range, class... Key>
  auto top(const Range &records, std::uint64_t most, Key... key) const
  {
    const auto call = [most](handle *of_group, const ftsort_record *record, const void *data, std::size_t count,
                             ftsort_result **made) { return ftsort_top(of_group, record, data, count, most, made); };
    return with_records(call, records, std::move(key)...);
  }

  /** Finds the distinct keys of records, which are lent, in order, and the number of records of each
   * (ftsort_unique). [C] */
  template <class Range, class... Key>
  auto unique(const Range &records, Key... key) const
  {
    using T = std::remove_cv_t<detail::element<const Range>>;
    const order<T> by = detail::make_order<T>(std::move(key)...);
    const ftsort_record record = by.native();
    ftsort_result *native = nullptr;
    const ftsort_status status = ftsort_unique(get(), &record, std::data(records), std::size(records), &native);
    return finish(status, [&] { return table<T, std::uint64_t>(native, by.comparator()); });
  }

  /** Combines the records with equal keys, which are lent: `group_by(records, order, count(), sum(&T::member))`
   * (ftsort_group_by). [C] */
  template <class Range, class T, class... Results, class... Members>
  returned<table<T, Results...>> group_by(const Range &records, const order<T> &by,
                                          const aggregate<Results, Members> &...aggregates) const
  {
    const view<const T> all(records);
    const ftsort_record record = by.native();
    const std::vector<ftsort_aggregate> natives{aggregates.template native<T>()...};
    ftsort_result *native = nullptr;
    const ftsort_status status =
        ftsort_group_by(get(), &record, natives.data(), natives.size(), all.data(), all.size(), &native);
    return finish(status, [&] { return table<T, Results...>(native, by.comparator()); });
  }

  // ---- Results ---------------------------------------------------------------------------------------------

  /** Recovers the blocks of ranks that have failed since the result was made (ftsort_result_recover). [C] */
  template <class Block>
  returned<void> recover(const result<Block> &of_this_rank) const
  {
    return finish(ftsort_result_recover(get(), of_this_rank.native()));
  }

  /** Verifies that a result is in order, and returns the number of places where it is wrong
   * (ftsort_result_verify without an input). [C] */
  template <class T>
  returned<std::uint64_t> verify(const sorted<T> &of_this_rank) const
  {
    return verified(of_this_rank.native(), nullptr, 0);
  }

  /** Verifies also that the result consists of the records of `input`, which can be empty (ftsort_result_verify). [C] */
  template <class T>
  returned<std::uint64_t> verify(const sorted<T> &of_this_rank, view<const T> input) const
  {
    /* NULL would mean that this rank passes no input. */
    const void *const data = input.empty() ? static_cast<const void *>(this) : input.data();
    return verified(of_this_rank.native(), data, input.size());
  }
  template <class T, class Range>
  returned<std::uint64_t> verify(const sorted<T> &of_this_rank, const Range &input) const
  {
    return verify(of_this_rank, view<const T>(input));
  }

  /** Wraps a part of an array that another program sorted, for `verify` (ftsort_result_of_array). The array must
   * outlive the result. [L] */
  template <class Range, class... Key>
  auto result_of(const Range &part, Key... key) const
  {
    return with_records(&ftsort_result_of_array, part, std::move(key)...);
  }

  // ---- Rounds and trees ------------------------------------------------------------------------------------

  /** Runs an algorithm of the caller; `state` has the elements of the state of this rank (ftsort_rounds_run). [C] */
  template <class Range>
  returned<sorted<std::byte>> run(const rounds &algorithm, const Range &state) const
  {
    const ftsort_rounds native_rounds = algorithm.native();
    ftsort_result *native = nullptr;
    const ftsort_status status =
        ftsort_rounds_run(get(), &native_rounds, std::data(state), bytes_of(state), &native);
    return finish(status, [&] { return sorted<std::byte>(native); });
  }

  /** Returns the first item of this rank and the number of its items, if `total` items are divided among the ranks that
   * can contribute to the tree (ftsort_tree_share). [L] */
  returned<std::pair<std::uint64_t, std::uint64_t>> share(const tree &options, std::uint64_t total) const
  {
    const ftsort_tree_options native_options = options.native();
    std::pair<std::uint64_t, std::uint64_t> range;
    const ftsort_status status = ftsort_tree_share(get(), &native_options, total, &range.first, &range.second);
    return finish(status, [&] { return range; });
  }

  /** Merges a contribution of every rank along a tree. The result is empty on all ranks but one
   * (ftsort_tree_merge). [C] */
  template <class Range>
  returned<sorted<std::byte>> merge(const tree &options, const Range &contribution) const
  {
    const ftsort_tree_options native_options = options.native();
    ftsort_result *native = nullptr;
    const ftsort_status status =
        ftsort_tree_merge(get(), &native_options, std::data(contribution), bytes_of(contribution), &native);
    return finish(status, [&] { return sorted<std::byte>(native); });
  }

  /** Copies the elements of one rank to all ranks (ftsort_tree_broadcast). [C] */
  template <class Range>
  returned<void> broadcast(const tree &options, std::int32_t root, Range &elements) const
  {
    const ftsort_tree_options native_options = options.native();
    return finish(
        ftsort_tree_broadcast(get(), &native_options, root, std::data(elements), bytes_of(elements)));
  }

  /** Hands the whole result to one rank, in order: `consume(view<const T>)` for each piece, which refuses by an
   * exception (ftsort_gather_sorted). [C] */
  template <class T, class Consume>
  returned<void> gather(const tree &options, const sorted<T> &of_this_rank, Consume &&consume) const
  {
    const ftsort_tree_options native_options = options.native();
    /* A function has no address that converts to `void *`, but an object that refers to it has. */
    auto consumer = [&consume](view<const T> piece) { consume(piece); };
    const auto call = [](void *user, const void *records, std::size_t count) noexcept {
      return detail::guarded([&] {
        (*static_cast<decltype(consumer) *>(user))(view<const T>(static_cast<const T *>(records), count));
        return 0;
      });
    };
    return finish(ftsort_gather_sorted(get(), &native_options, of_this_rank.native(), call, &consumer));
  }

  /** Describes the tree of the last call that used one (ftsort_tree_get_info). [L] */
  returned<ftsort_tree_info> tree_info() const
  {
    ftsort_tree_info info = FTSORT_TREE_INFO_INIT;
    const ftsort_status status = ftsort_tree_get_info(get(), &info);
    return finish(status, [&] { return info; });
  }

  // ---- Failures --------------------------------------------------------------------------------------------

  /** Finds failed ranks, and returns the number of new ones (ftsort_fault_check). [C] */
  returned<std::size_t> fault_check() const
  {
    std::size_t new_failures = 0;
    const ftsort_status status = ftsort_fault_check(get(), &new_failures);
    return finish(status, [&] { return new_failures; });
  }

  /** Combines the flags of all survivors with a bitwise AND (ftsort_agree). [C] */
  returned<agreement> agree(std::uint32_t flags) const
  {
    agreement agreed{flags, 0};
    const ftsort_status status = ftsort_agree(get(), &agreed.flags, &agreed.new_failures);
    return finish(status, [&] { return agreed; });
  }

  /** Lends a communicator of the survivors, which belongs to the group (ftsort_comm). [C] */
  returned<MPI_Comm> comm() const
  {
    MPI_Comm survivors = MPI_COMM_NULL;
    const ftsort_status status = ftsort_comm(get(), &survivors);
    return finish(status, [&] { return survivors; });
  }

  /** Returns the number of `rank` in the communicator of `comm` (ftsort_comm_rank). [L] */
  int comm_rank(std::int32_t rank) const { return ftsort_comm_rank(get(), rank); }

  std::int32_t rank() const { return ftsort_rank(get()); }
  std::int32_t ranks() const { return ftsort_ranks(get()); }
  std::uint32_t dimension() const { return ftsort_dimension(get()); }
  bool is_failed(std::int32_t rank) const { return ftsort_is_failed(get(), rank) != 0; }
  bool is_spare(std::int32_t rank) const { return ftsort_is_spare(get(), rank) != 0; }
  std::int32_t executor(std::int32_t node) const { return ftsort_executor(get(), node); }
  std::int32_t partner(std::int32_t node, std::uint32_t s) const { return ftsort_partner(get(), node, s); }

  /** Kills this process if the fault schedule names it and `round` (ftsort_inject). [L] */
  returned<void> inject(std::uint32_t round) const { return finish(ftsort_inject(get(), round)); }

  /** Returns the figures of the last sort (ftsort_get_stats). [L] */
  returned<ftsort_stats> stats() const
  {
    ftsort_stats figures = FTSORT_STATS_INIT;
    const ftsort_status status = ftsort_get_stats(get(), &figures);
    return finish(status, [&] { return figures; });
  }

  /** Ends the process in place of the destructor, MPI_Finalize and exit; returns only after an error
   * (ftsort_leave). [C] */
  returned<void> leave(int exit_code = 0) const
  {
    /* The call releases the group, and exit then destroys this object if it is a static one. */
    const bool owns = std::exchange(native_.get_deleter().owns, false);
    const ftsort_status status = ftsort_leave(get(), exit_code);
    native_.get_deleter().owns = owns;
    return finish(status);
  }

  /** Returns the group of C, which belongs to this object. */
  handle *native() const { return get(); }

  /** Returns the value or the error of a call of C with this group. */
  template <class Make>
  auto finish(ftsort_status status, Make make) const
  {
    return detail::finish<Policy>(get(), status, std::move(make));
  }
  returned<void> finish(ftsort_status status) const { return detail::finish<Policy>(get(), status); }

 private:
  friend class monitor<Policy>;

  struct empty {};
  explicit basic_group(empty) {}

  handle *get() const { return native_.get(); }

  ftsort_status start(MPI_Comm comm, config options)
  {
    options_ = std::make_unique<config>(std::move(options));
    const ftsort_config made = options_->native();
    handle *native = nullptr;
    const ftsort_status status = ftsort_init(comm, &made, &native);
    native_.reset(native);
    return status;
  }

  /** Keeps the options of a monitor while the group of C can call their test procedure. A group of `of` can outlive this
   * object, which does not learn of its end, so its options are never released. */
  void keep(const std::shared_ptr<const void> &options) const
  {
    monitor_options_ = options;
    if (!native_.get_deleter().owns) static_cast<void>(new std::shared_ptr<const void>(options));
  }

  returned<std::uint64_t> verified(const ftsort_result *of_this_rank, const void *input, std::size_t count) const
  {
    std::uint64_t violations = 0;
    const ftsort_status status = ftsort_result_verify(get(), of_this_rank, input, count, &violations);
    return finish(status, [&] { return violations; });
  }

  template <class Range>
  static std::size_t bytes_of(const Range &range)
  {
    using T = detail::element<const Range>;
    static_assert(std::is_trivially_copyable_v<T>,
                  "bytes move to other processes: the type must be trivially copyable");
    return std::size(range) * sizeof(T);
  }

  template <class T, class Of>
  returned<sorted<T>> sorted_of(ftsort_status status, ftsort_result *native, const order<Of> &by) const
  {
    return finish(status, [&] { return sorted<T>(native, by.comparator()); });
  }

  /** Calls a function of C that takes the records of this rank and makes a result with elements of type `Out`; void:
   * of the type of the records. */
  template <class Out = void, class Call, class Range, class... Key>
  auto with_records(Call call, const Range &records, Key... key) const
  {
    using T = std::remove_cv_t<detail::element<const Range>>;
    using Element = std::conditional_t<std::is_void_v<Out>, T, Out>;
    const order<T> by = detail::make_order<T>(std::move(key)...);
    const ftsort_record record = by.native();
    ftsort_result *native = nullptr;
    const ftsort_status status = call(get(), &record, std::data(records), std::size(records), &native);
    return sorted_of<Element>(status, native, by);
  }

  /** Calls a function of C that finds one record for each element of `wanted`. */
  template <class Call, class Range, class Wanted, class... Key>
  auto found(Call call, const Range &records, view<const Wanted> wanted, Key... key) const
  {
    using T = std::remove_cv_t<detail::element<const Range>>;
    const order<T> by = detail::make_order<T>(std::move(key)...);
    const ftsort_record record = by.native();
    /* Not a vector of `T`, which may be `bool` or have no default constructor. */
    std::vector<detail::unmade<T>> storage;
#ifdef __cpp_exceptions
    try {
      storage = decltype(storage)(wanted.size());
    } catch (...) { /* The other ranks are in the call. */
      call(get(), nullptr, nullptr, 0, nullptr, 0, nullptr);
      throw;
    }
#else
    storage = decltype(storage)(wanted.size());
#endif
    const ftsort_status status = call(get(), &record, std::data(records), std::size(records), wanted.data(),
                                      wanted.size(), storage.data());
    std::vector<T> out;
    for (std::size_t i = 0; status == FTSORT_OK && i < storage.size(); i++) out.push_back(storage[i].value);
    return finish(status, [&] { return std::move(out); });
  }

  /* Members are released from the last one up: the group before the handlers that it uses. */
  std::unique_ptr<config> options_;
  mutable std::shared_ptr<const void> monitor_options_; /* Of the last monitor, whose thread calls its test procedure. */
  struct release {
    bool owns = true; /* False: the communicator owns the group, or ftsort_leave releases it. */
    void operator()(handle *native) const
    {
      if (owns) ftsort_free(native);
    }
  };
  mutable std::unique_ptr<handle, release> native_; /* Constant but for `leave`. */
};

/** A group that throws `error`. */
using group = basic_group<throwing>;

/** A group that returns `expected`. */
using nothrow_group = basic_group<returning>;

/** Lists the nodes of cluster `s` of `node` (ftsort_cluster). [L] */
inline std::vector<std::int32_t> cluster(std::int32_t node, std::uint32_t s)
{
  std::vector<std::int32_t> nodes(ftsort_cluster(node, s, nullptr, 0));
  ftsort_cluster(node, s, nodes.data(), nodes.size());
  return nodes;
}

}  // namespace ftsort

#endif /* FTSORT_GROUP_HPP */
