/* order.hpp: orders of records: by a number, a member, several members, a comparator or a projection. A part of
 * ftsort.hpp. */
#ifndef FTSORT_ORDER_HPP
#define FTSORT_ORDER_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"

namespace ftsort {

namespace detail {

/** Returns the `ftsort_key` of a number. */
template <class T>
constexpr ftsort_key number_key()
{
  if constexpr (std::is_enum_v<T>) {
    return number_key<std::underlying_type_t<T>>();
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "long double has no order in ftsort: use double, or a lambda that compares");
    static_assert(sizeof(T) >= 4, "floats of 2 bytes have no order in ftsort: use float, or a lambda that compares");
    return sizeof(T) == 4 ? FTSORT_KEY_F32 : FTSORT_KEY_F64;
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 8,
                  "a key is a number, an enumeration, or an array of characters or bytes: name a member of this type, "
                  "or pass a comparator");
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? FTSORT_KEY_I8 : FTSORT_KEY_U8;
    if constexpr (sizeof(T) == 2) return is_signed ? FTSORT_KEY_I16 : FTSORT_KEY_U16;
    if constexpr (sizeof(T) == 4) return is_signed ? FTSORT_KEY_I32 : FTSORT_KEY_U32;
    return is_signed ? FTSORT_KEY_I64 : FTSORT_KEY_U64;
  }
}

/** Returns the MPI datatype of a number. */
template <class T>
MPI_Datatype mpi_type()
{
  switch (number_key<T>()) {
    case FTSORT_KEY_I8: return MPI_INT8_T;
    case FTSORT_KEY_U8: return MPI_UINT8_T;
    case FTSORT_KEY_I16: return MPI_INT16_T;
    case FTSORT_KEY_U16: return MPI_UINT16_T;
    case FTSORT_KEY_I32: return MPI_INT32_T;
    case FTSORT_KEY_U32: return MPI_UINT32_T;
    case FTSORT_KEY_I64: return MPI_INT64_T;
    case FTSORT_KEY_U64: return MPI_UINT64_T;
    case FTSORT_KEY_F32: return MPI_FLOAT;
    default: return MPI_DOUBLE;
  }
}

/** The key of a member: a number by default. */
template <class T>
struct key_of {
  static constexpr ftsort_key key = number_key<T>();
};

/** Characters are text up to the first 0, and other bytes are compared as by memcmp. */
template <class T, std::size_t Size>
struct key_of<T[Size]> {
  static_assert(sizeof(T) == 1 || std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>,
                "an array is a key if its elements are characters or bytes");
#ifdef __cpp_char8_t
  static constexpr bool is_text = std::is_same_v<T, char> || std::is_same_v<T, char8_t>;
#else
  static constexpr bool is_text = std::is_same_v<T, char>;
#endif
  static constexpr ftsort_key key = is_text                       ? FTSORT_KEY_TEXT
                                    : std::is_same_v<T, char16_t> ? FTSORT_KEY_TEXT16
                                    : std::is_same_v<T, char32_t> ? FTSORT_KEY_TEXT32
                                                                  : FTSORT_KEY_BYTES;
};

template <class T, std::size_t Size>
struct key_of<std::array<T, Size>> : key_of<std::remove_const_t<T>[Size]> {};

/** Storage of which members have an address, for types without a default constructor too. */
template <class T>
union unmade {
  unmade() : nothing() {}
  char nothing;
  T value;
};

/** The offset in `T` of a member of `T` or of a base class of it. */
template <class T, class Owner, class Member>
std::size_t offset_of(Member Owner::*member)
{
  static_assert(std::is_base_of_v<Owner, T>, "the member belongs to another type than the records");
  Member T::*const of_record = member;
  const unmade<T> record;
  return static_cast<std::size_t>(reinterpret_cast<const char *>(std::addressof(record.value.*of_record)) -
                                  reinterpret_cast<const char *>(std::addressof(record)));
}

template <class T, class Owner, class Member>
ftsort_key_part part_of(Member Owner::*member, bool descending)
{
  return {offset_of<T>(member), sizeof(Member), key_of<std::remove_cv_t<Member>>::key, descending ? 1 : 0};
}

struct identity {
  template <class T>
  constexpr T &&operator()(T &&value) const noexcept
  {
    return static_cast<T &&>(value);
  }
};

/** 1 for the ascending order of keys of a type, -1 for the descending one, 0 for any other comparator, such as one that
 * converts the keys to another type. */
template <class Compare, class Key>
inline constexpr int direction = 0;
template <class Key>
inline constexpr int direction<std::less<>, Key> = 1;
template <class Key>
inline constexpr int direction<std::less<Key>, Key> = 1;
template <class Key>
inline constexpr int direction<std::greater<>, Key> = -1;
template <class Key>
inline constexpr int direction<std::greater<Key>, Key> = -1;
#if __cplusplus >= 202002L && defined(__cpp_lib_ranges)
template <class Key>
inline constexpr int direction<std::ranges::less, Key> = 1;
template <class Key>
inline constexpr int direction<std::ranges::greater, Key> = -1;
#endif

/** The type of the keys of records of type `T`: of the records, or of a member. */
template <class T, class Project>
using key_type = std::remove_cv_t<std::remove_reference_t<std::invoke_result_t<Project, const T &>>>;

/** Returns an integer, so that the order of integers is the total order of IEEE 754. */
template <class Number>
auto total_order(Number number)
{
  using integer = std::conditional_t<sizeof(Number) == 4, std::int32_t, std::int64_t>;
  integer bits = 0;
  static_assert(sizeof bits == sizeof number, "long double has no order in ftsort: use double, or a lambda that compares");
  std::memcpy(&bits, &number, sizeof bits);
  return bits < 0 ? bits ^ std::numeric_limits<integer>::max() : bits;
}

/** A comparator and a projection of the caller, as a C callback. An exception ends the program. */
template <class T, class Compare, class Project>
struct comparison {
  Compare compare;
  Project project;

  static int call(void *user, const void *a, const void *b) noexcept
  {
    const comparison &self = *static_cast<const comparison *>(user);
    auto &&one = std::invoke(self.project, *static_cast<const T *>(a));
    auto &&other = std::invoke(self.project, *static_cast<const T *>(b));
    using key = key_type<T, Project>;
    constexpr int ascending = direction<Compare, key>;
    static_assert(ascending == 0 || (!std::is_pointer_v<key> && !std::is_array_v<key>),
                  "std::less and std::greater compare the addresses of pointers and arrays: name the member "
                  "(&star::name), or let the projection return a std::string_view");
    if constexpr (ascending != 0 && std::is_floating_point_v<key>) {
      const auto low = total_order(one), high = total_order(other);
      return low == high ? 0 : low < high ? -ascending : ascending;
    } else {
      if (std::invoke(self.compare, one, other)) return -1;
      return std::invoke(self.compare, other, one) ? 1 : 0;
    }
  }
};

}  // namespace detail

/** A member in descending order, for `by`. */
template <class T, class Member>
struct descending_member {
  Member T::*member;
};

template <class T, class Member>
descending_member<T, Member> descending(Member T::*member)
{
  return {member};
}

/** The order of the records of type `T`. Copies share a comparator, which lives as long as any of them, and as long as
 * the results that were made with it. */
template <class T>
class order {
 public:
  static_assert(std::is_trivially_copyable_v<T>,
                "records move to other processes byte by byte: the type must be trivially copyable");

  /** The order of numbers. Floating-point numbers are in the total order of IEEE 754 (`ftsort_key`). */
  order() { set_key(0, 0, detail::number_key<T>(), false); }

  /** The order of a comparator, which is called by several threads at once and must not throw. */
  template <class Compare, class Project = detail::identity>
  static order of(Compare compare, Project project = {})
  {
    constexpr int direction = detail::direction<Compare, detail::key_type<T, Project>>;
    order made{nothing{}};
    constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T>;
    if constexpr (direction != 0 && is_number && std::is_same_v<Project, detail::identity>) {
      made.set_key(0, 0, detail::number_key<T>(), direction < 0);
    } else if constexpr (direction != 0 && std::is_member_object_pointer_v<Project>) {
      const ftsort_key_part part = detail::part_of<T>(project, direction < 0);
      made.set_key(part.offset, part.bytes, part.key, direction < 0);
    } else {
      made.set_compare(std::move(compare), std::move(project));
    }
    return made;
  }

  /** The order of several members: the first decides, among equal ones the second, and so on. */
  static order by_parts(std::vector<ftsort_key_part> parts)
  {
    order made{nothing{}};
    made.record_.key = FTSORT_KEY_LIST;
    made.parts_ = std::move(parts);
    return made;
  }

  /** The order of a record of C, of ftsort_record_of_type for example. Calls refuse it if its size is not that of `T`. */
  static order of_record(const ftsort_record &record)
  {
    order made{nothing{}};
    made.record_ = record;
    /* The library refuses it, and reads nothing behind the end of a range. */
    if (record.record_bytes != sizeof(T)) made.record_.record_bytes = 0;
    if (record.part_count > 0) made.parts_.assign(record.parts, record.parts + record.part_count);
    return made;
  }

  /** Makes records with equal keys keep the order of ranks and positions. */
  order &stable()
  {
    record_.stable = 1;
    return *this;
  }

  /** Sets the number of the order, the same on all ranks and in later jobs, such as a hash of its name (`type_id` of
   * ftsort_record). The `resume` of external_sort and `sort_stored` need it for a comparator, which a later job cannot
   * recognise otherwise. */
  order &type_id(std::uint64_t number)
  {
    record_.type_id = number;
    return *this;
  }

  /** Reverses the order. */
  order &reverse()
  {
    record_.descending = record_.descending == 0 ? 1 : 0;
    return *this;
  }

  /** Returns the record of C, which is valid as long as this order. */
  ftsort_record native() const
  {
    ftsort_record record = record_;
    record.parts = parts_.empty() ? nullptr : parts_.data();
    record.part_count = parts_.size();
    return record;
  }

  /** Returns the owner of the comparator, for results. */
  const std::shared_ptr<const void> &comparator() const { return comparator_; }

 private:
  struct nothing {};
  explicit order(nothing) { record_.record_bytes = sizeof(T); }

  void set_key(std::size_t offset, std::size_t bytes, std::int32_t key, bool descending)
  {
    record_.record_bytes = sizeof(T);
    record_.key_offset = offset;
    record_.key_bytes = bytes;
    record_.key = key;
    record_.descending = descending ? 1 : 0;
  }

  template <class Compare, class Project>
  void set_compare(Compare compare, Project project)
  {
    static_assert(alignof(T) <= 16, "a comparator sees records that are aligned to 16 bytes");
    using comparison = detail::comparison<T, Compare, Project>;
    const auto owner = std::make_shared<comparison>(comparison{std::move(compare), std::move(project)});
    record_.key = FTSORT_KEY_COMPARE;
    record_.compare = &comparison::call;
    record_.user = owner.get();
    comparator_ = owner;
  }

  ftsort_record record_ = {sizeof(ftsort_record), 0, 0, 0, 0, 0, 0, nullptr, nullptr, nullptr, 0, 0};
  std::vector<ftsort_key_part> parts_;
  std::shared_ptr<const void> comparator_;
};

namespace detail {

template <class T, class Owner, class Member>
ftsort_key_part any_part(Member Owner::*member)
{
  return part_of<T>(member, false);
}

template <class T, class Owner, class Member>
ftsort_key_part any_part(descending_member<Owner, Member> key)
{
  return part_of<T>(key.member, true);
}

template <class T, class Member>
T owner_of(Member T::*);
template <class T, class Member>
T owner_of(descending_member<T, Member>);

template <class T>
inline constexpr bool is_order = false;
template <class T>
inline constexpr bool is_order<order<T>> = true;

/** The order that the arguments of a call describe: none, an order, a comparator, a projection, or both. */
template <class T>
order<T> make_order()
{
  return order<T>();
}

template <class T, class Key>
order<T> make_order(Key key)
{
  if constexpr (is_order<Key>) {
    static_assert(std::is_same_v<Key, order<T>>,
                  "the order is one of another type of records; with members of a base class, write by<record>(...)");
    return key;
  } else if constexpr (std::is_invocable_v<const Key &, const T &, const T &>) {
    return order<T>::of(std::move(key));
  } else {
    static_assert(std::is_invocable_v<const Key &, const T &>,
                  "expected a comparator of two records, a projection of one, a pointer to a member, or an order");
    return order<T>::of(std::less<>(), std::move(key));
  }
}

template <class T, class Compare, class Project>
order<T> make_order(Compare compare, Project project)
{
  return order<T>::of(std::move(compare), std::move(project));
}

}  // namespace detail

/** The order of several members of a record: `by(&star::name, descending(&star::magnitude))`. If members of base classes
 * are among them, the type of the records is named: `by<star>(&body::name, &star::magnitude)`. */
template <class Record = void, class First, class... Rest>
auto by(First first, Rest... rest)
{
  using owner = decltype(detail::owner_of(first));
  using record = std::conditional_t<std::is_void_v<Record>, owner, Record>;
  static_assert(!std::is_void_v<Record> || (std::is_same_v<owner, decltype(detail::owner_of(rest))> && ...),
                "the members belong to several types: name that of the records, by<record>(...)");
  return order<record>::by_parts({detail::any_part<record>(first), detail::any_part<record>(rest)...});
}

/** An aggregate of `group_by` with numbers of the type `Result`, of a member of the records or of a base class. */
template <class Result, class Member>
struct aggregate {
  ftsort_aggregation aggregation;
  Member member;

  template <class T>
  ftsort_aggregate native() const
  {
    if constexpr (std::is_null_pointer_v<Member>) {
      return {aggregation, 0, 0};
    } else {
      using number = std::decay_t<decltype(std::declval<T>().*member)>;
      return {aggregation, detail::number_key<number>(), detail::offset_of<T>(member)};
    }
  }
};

/** The number of records with a key. */
inline aggregate<std::uint64_t, std::nullptr_t> count() { return {FTSORT_COUNT, nullptr}; }

namespace detail {

/** The type of a sum: 64 bits of the kind of number, which is that of the underlying type of an enumeration. */
template <class Number, bool = std::is_enum_v<Number>>
struct sum_type {
  using type = std::conditional_t<std::is_floating_point_v<Number>, double,
                                  std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>>;
};
template <class Number>
struct sum_type<Number, true> : sum_type<std::underlying_type_t<Number>> {};
template <class Number>
using sum_of = typename sum_type<Number>::type;

}  // namespace detail

/** The sum, the first and the last number of a member among the records with a key (`ftsort_aggregation`). */
template <class T, class Number>
aggregate<detail::sum_of<std::remove_const_t<Number>>, Number T::*> sum(Number T::*member)
{
  return {FTSORT_SUM, member};
}
template <class T, class Number>
aggregate<std::remove_const_t<Number>, Number T::*> least(Number T::*member)
{
  return {FTSORT_LEAST, member};
}
template <class T, class Number>
aggregate<std::remove_const_t<Number>, Number T::*> greatest(Number T::*member)
{
  return {FTSORT_GREATEST, member};
}

}  // namespace ftsort

#endif /* FTSORT_ORDER_HPP */
