/* store.hpp: the states of a loop of the caller, as transactions (ftsort_store.h). A part of ftsort.hpp. */
#ifndef FTSORT_STORE_HPP
#define FTSORT_STORE_HPP

#include <cstddef>
#include <cstdint>
#include <string>

#include "callbacks.hpp"
#include "group.hpp"

namespace ftsort {

/** The stored states of a group, which must outlive this object. */
template <class Policy>
class store {
  template <class T>
  using returned = typename Policy::template result<T>;

 public:
  explicit store(const basic_group<Policy> &of_group) : group_(of_group) {}

  /** Gives the states a name, under which another job finds them; before the first put. True: there are states of an
   * earlier job, and get returns them (ftsort_store_open). [C] */
  returned<bool> open(const std::string &name) const
  {
    int found = 0;
    const ftsort_status status = ftsort_store_open(group_.native(), name.c_str(), &found);
    return group_.finish(status, [&] { return found != 0; });
  }

  /** Stages the state of a node, the elements of a contiguous range, for the next commit (ftsort_store_put). [L] */
  template <class Range>
  returned<void> put(std::int32_t node, const Range &state) const
  {
    using T = detail::element<const Range>;
    static_assert(std::is_trivially_copyable_v<T>, "states move to other processes byte by byte");
    return group_.finish(
        ftsort_store_put(group_.native(), node, std::data(state), std::size(state) * sizeof(T)));
  }

  /** Returns the committed state of a node as elements of type `T`; none if no state was committed or if it is lost.
   * The view is valid until the next fault_check, commit, clear or sort_stored, the next `run` of rounds with
   * `store_every`, or the release of the group (ftsort_store_get). [L] */
  template <class T>
  returned<view<const T>> get(std::int32_t node) const
  {
    const void *state = nullptr;
    std::size_t size = 0;
    const ftsort_status status = ftsort_store_get(group_.native(), node, &state, &size);
    return group_.finish(status, [&] { return elements<T>(state, state == nullptr ? 0 : size); });
  }

  /** Commits a round if all survivors are done and no rank failed; false: repeat it (ftsort_store_commit). [C] */
  returned<bool> commit(bool done = true) const
  {
    int committed = 0;
    const ftsort_status status = ftsort_store_commit(group_.native(), done ? 1 : 0, &committed);
    return group_.finish(status, [&] { return committed != 0; });
  }

  /** Discards all stored states (ftsort_store_clear). [C] */
  returned<void> clear() const { return group_.finish(ftsort_store_clear(group_.native())); }

 private:
  const basic_group<Policy> &group_;
};

}  // namespace ftsort

#endif /* FTSORT_STORE_HPP */
