/* error.hpp: statuses as exceptions or as values, and views of arrays. A part of ftsort.hpp. */
#ifndef FTSORT_ERROR_HPP
#define FTSORT_ERROR_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef FTSORT_H
#error "include ftsort.hpp before ftsort.h, or instead of it: the C type `ftsort` and this namespace have the same name"
#endif
/* The type `ftsort` of the C headers is `ftsort_handle` in programs that include this header. */
#define ftsort ftsort_handle
#include "../ftsort_all.h"
#undef ftsort

namespace ftsort {

/** A group of C, for calls of C functions. */
using handle = ::ftsort_handle;

/** The macros of the C headers as constants. */
inline constexpr std::uint32_t no_timeout = FTSORT_NO_TIMEOUT;
inline constexpr std::uint32_t no_exchange = FTSORT_NO_EXCHANGE;
inline constexpr std::uint32_t share_all = FTSORT_SHARE_ALL;

namespace detail {

template <class>
inline constexpr bool never = false;

/** The type of the elements of a contiguous range: of `std::vector`, `std::array`, arrays and views. */
template <class Range>
using element = std::remove_pointer_t<decltype(std::data(std::declval<Range &>()))>;

template <class Range, class = void>
struct is_contiguous : std::false_type {};

template <class Range>
struct is_contiguous<Range, std::void_t<element<Range>, decltype(std::size(std::declval<Range &>()))>>
    : std::true_type {};

}  // namespace detail

/** Borrowed elements of an array, as `std::span` of C++20. */
template <class T>
class view {
 public:
  using value_type = std::remove_cv_t<T>;
  using iterator = T *;

  constexpr view() = default;

  /** Views `size` elements. The literal 0 is no pointer here, so `{0, 2}` is no view. */
  template <class P, std::enable_if_t<std::is_convertible_v<P (*)[], T (*)[]>, int> = 0>
  constexpr view(P *data, std::size_t size) : data_(data), size_(size) {}

  /** Views a contiguous range. */
  template <class Range, std::enable_if_t<!std::is_same_v<std::decay_t<Range>, view> &&
                                              std::is_convertible_v<detail::element<Range> (*)[], T (*)[]>,
                                          int> = 0>
  constexpr view(Range &&range) : data_(std::data(range)), size_(std::size(range)) {}

  constexpr T *data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T *begin() const { return data_; }
  constexpr T *end() const { return data_ + size_; }
  constexpr T &operator[](std::size_t index) const { return data_[index]; }

 private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

/** The text of the last exception of a callback on this thread. */
inline std::string &callback_text()
{
  thread_local std::string text;
  return text;
}

}  // namespace detail

/** A status other than FTSORT_OK. The exception that `group` throws, and the error of `expected`. */
class error : public std::exception {
 public:
  error(ftsort_status status, std::vector<std::int32_t> ranks, std::string text)
      : status_(status), ranks_(std::move(ranks)), text_(std::move(text)) {}

  /** Returns the status, one of `ftsort_status_code`. */
  ftsort_status status() const noexcept { return status_; }

  /** Returns the ranks that lost data, in ascending order; not empty only for FTSORT_ERR_DATA_LOST. */
  const std::vector<std::int32_t> &ranks() const noexcept { return ranks_; }

  /** Returns the meaning of the status and the reason: the argument and its value, the file, or the rank. */
  const char *what() const noexcept override { return text_.c_str(); }

  /** Makes the error of the last call with `group`, or of this thread if `group` is NULL (ftsort_last_error,
   * ftsort_lost_ranks). */
  static error last(const handle *group, ftsort_status status)
  {
    std::vector<std::int32_t> ranks;
    if (status == FTSORT_ERR_DATA_LOST && group != nullptr) {
      ranks.resize(ftsort_lost_ranks(group, nullptr, 0));
      ftsort_lost_ranks(group, ranks.data(), ranks.size());
    }
    const char *reason = ftsort_last_error(group); /* Begins with the meaning of the status. */
    std::string text = *reason != '\0' ? reason : ftsort_status_text(status);
    const std::string thrown = std::exchange(detail::callback_text(), std::string());
    /* FTSORT_ERR_STORE: the status after an exception in external::write. */
    const bool is_refused = status == FTSORT_ERR_CALLBACK || status == FTSORT_ERR_STORE;
    if (is_refused && !thrown.empty()) text.append(": ").append(thrown);
    return error(status, std::move(ranks), std::move(text));
  }

 private:
  ftsort_status status_;
  std::vector<std::int32_t> ranks_;
  std::string text_;
};

namespace detail {

[[noreturn]] inline void fail(const error &failure)
{
#ifdef __cpp_exceptions
  throw failure;
#else
  static_cast<void>(failure);
  std::abort();
#endif
}

/** The error of a datatype of MPI with another size than the type of the elements. */
inline error other_size(std::size_t given, std::size_t wanted)
{
  return error(FTSORT_ERR_ARGUMENT, {}, "type has " + std::to_string(given) + " bytes, and T has " +
                                            std::to_string(wanted) + ": pass the datatype of T");
}

}  // namespace detail

/** A value or an error, as `std::expected` of C++23. */
template <class T>
class [[nodiscard]] expected {
 public:
  expected(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  expected(ftsort::error failure) : content_(std::in_place_index<1>, std::move(failure)) {}

  bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /** The value; without one the behaviour is undefined. */
  T &operator*() & { return *std::get_if<0>(&content_); }
  const T &operator*() const & { return *std::get_if<0>(&content_); }
  T &&operator*() && { return std::move(*std::get_if<0>(&content_)); }
  T *operator->() { return std::get_if<0>(&content_); }
  const T *operator->() const { return std::get_if<0>(&content_); }

  /** The value; without one throws the error, or calls std::abort if exceptions are disabled. */
  T &value() &
  {
    if (!has_value()) detail::fail(error());
    return **this;
  }
  const T &value() const &
  {
    if (!has_value()) detail::fail(error());
    return **this;
  }
  T &&value() && { return std::move(value()); }

  /** The error; with a value the behaviour is undefined. */
  const ftsort::error &error() const { return *std::get_if<1>(&content_); }

 private:
  std::variant<T, ftsort::error> content_;
};

/** Success or an error. */
template <>
class [[nodiscard]] expected<void> {
 public:
  expected() = default;
  expected(ftsort::error failure) : content_(std::move(failure)) {}

  bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /** Without success throws the error, or calls std::abort if exceptions are disabled. */
  void value() const
  {
    if (!has_value()) detail::fail(error());
  }

  /** The error; with success the behaviour is undefined. */
  const ftsort::error &error() const { return *std::get_if<1>(&content_); }

 private:
  std::variant<std::monostate, ftsort::error> content_;
};

/** The policy of `group`: an error is thrown. */
struct throwing {
#ifdef __cpp_exceptions
  static constexpr bool is_available = true;
#else
  static constexpr bool is_available = false;
#endif
  template <class T>
  using result = T;
  template <class T>
  [[noreturn]] static T refuse(const error &failure)
  {
    detail::fail(failure);
  }
};

/** The policy of `nothrow_group`: an error is returned. */
struct returning {
  static constexpr bool is_available = true;
  template <class T>
  using result = expected<T>;
  template <class T>
  static expected<T> refuse(error failure)
  {
    return expected<T>(std::move(failure));
  }
};

namespace detail {

/** The result of a call with the policy: the value that `make` returns, or the error of the status. */
template <class Policy, class Make>
auto finish(const handle *group, ftsort_status status, Make make) ->
    typename Policy::template result<decltype(make())>
{
  using Value = decltype(make());
  if (status != FTSORT_OK) return Policy::template refuse<Value>(error::last(group, status));
  callback_text().clear(); /* A call can succeed after an exception, and a later error has another reason. */
  if constexpr (std::is_void_v<Value>) {
    make();
    return typename Policy::template result<void>();
  } else {
    return make();
  }
}

template <class Policy>
typename Policy::template result<void> finish(const handle *group, ftsort_status status)
{
  return finish<Policy>(group, status, [] {});
}

}  // namespace detail

/** The version of the loaded library (ftsort_version). */
struct version_numbers {
  int major, minor, patch;
};

inline version_numbers version()
{
  version_numbers numbers{};
  ftsort_version(&numbers.major, &numbers.minor, &numbers.patch);
  return numbers;
}

/** A line for bug reports (ftsort_build_info). */
inline const char *build_info() { return ftsort_build_info(); }

/** Sets the options that MPI needs to survive failures; call it before MPI_Init. Returns false if MPI is initialised already
 * (ftsort_prepare). */
inline bool prepare() { return ftsort_prepare() == FTSORT_OK; }

/** Lets FTSORT_FAULTS inject failures into later groups, in tests (ftsort_allow_faults). */
inline void allow_faults() { ftsort_allow_faults(); }

}  // namespace ftsort

#endif /* FTSORT_ERROR_HPP */
