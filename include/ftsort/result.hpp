/* result.hpp: results as ranges over blocks, and protected inputs. A part of ftsort.hpp. */
#ifndef FTSORT_RESULT_HPP
#define FTSORT_RESULT_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "error.hpp"
#include "order.hpp"

namespace ftsort {

/** The records of one node, borrowed from a result. */
template <class T>
class block : public view<const T> {
 public:
  block() = default;
  block(const ftsort_result *result, std::size_t index) : block(described(result, index)) {}

  /** The node of the block. */
  std::int32_t node = 0;
  /** The position of the first record in the global order. */
  std::uint64_t offset = 0;

 private:
  explicit block(const ftsort_block &found)
      : view<const T>(static_cast<const T *>(found.data), found.count), node(found.node), offset(found.offset)
  {
  }

  static ftsort_block described(const ftsort_result *result, std::size_t index)
  {
    ftsort_block found = {};
    ftsort_result_block(result, index, &found);
    return found;
  }
};

/** The rows of one node, borrowed from a result with several columns. */
template <class... Columns>
class rows {
 public:
  rows() = default;
  rows(const ftsort_result *result, std::size_t index) : result_(result), index_(index)
  {
    ftsort_block found = {};
    ftsort_result_block(result, index, &found);
    node = found.node;
    offset = found.offset;
    size_ = found.count;
  }

  /** Returns a column: one element for each row (ftsort_result_column). */
  template <std::size_t Column>
  auto column() const
  {
    using element = std::tuple_element_t<Column, std::tuple<Columns...>>;
    const void *data = nullptr;
    ftsort_result_column(result_, index_, Column, &data, nullptr);
    return view<const element>(static_cast<const element *>(data), data == nullptr ? 0 : size_);
  }

  std::size_t size() const { return size_; }

  /** The node of the rows. */
  std::int32_t node = 0;
  /** The position of the first row in the global order. */
  std::uint64_t offset = 0;

 private:
  const ftsort_result *result_ = nullptr;
  std::size_t index_ = 0, size_ = 0;
};

/** A result of a sort, of rounds or of a tree: a range over the blocks of this rank, in ascending order of node.
 *
 * Owns the memory of the blocks, and remains valid after its group. Several threads may read it at once. */
template <class Block>
class result {
 public:
  using value_type = Block;

  /** An iterator that makes the description of a block when it is read. */
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Block;
    using difference_type = std::ptrdiff_t;
    using pointer = const Block *;
    using reference = Block;

    iterator() = default;
    iterator(const ftsort_result *result, std::size_t index) : result_(result), index_(index) {}
    Block operator*() const { return Block(result_, index_); }
    iterator &operator++()
    {
      ++index_;
      return *this;
    }
    iterator operator++(int)
    {
      iterator before = *this;
      ++index_;
      return before;
    }
    friend bool operator==(const iterator &a, const iterator &b) { return a.index_ == b.index_; }
    friend bool operator!=(const iterator &a, const iterator &b) { return a.index_ != b.index_; }

   private:
    const ftsort_result *result_ = nullptr;
    std::size_t index_ = 0;
  };

  /** An empty result. */
  result() = default;

  /** Takes over a result of C, and keeps the comparator of its records. */
  explicit result(ftsort_result *native, std::shared_ptr<const void> comparator = nullptr)
      : comparator_(std::move(comparator)), native_(native)
  {
  }

  /** Returns the number of blocks on this rank (ftsort_result_count). */
  std::size_t size() const { return ftsort_result_count(native_.get()); }
  bool empty() const { return size() == 0; }
  Block operator[](std::size_t index) const { return Block(native_.get(), index); }
  iterator begin() const { return iterator(native_.get(), 0); }
  iterator end() const { return iterator(native_.get(), size()); }

  /** Returns the number of records over all ranks (ftsort_result_total). */
  std::uint64_t total() const { return ftsort_result_total(native_.get()); }

  /** Returns the number of columns (ftsort_result_columns). */
  std::size_t columns() const { return ftsort_result_columns(native_.get()); }

  /** Returns the result of C, which belongs to this object; NULL for an empty result. */
  ftsort_result *native() const { return native_.get(); }

 protected:
  struct release {
    void operator()(ftsort_result *native) const { ftsort_result_free(native); }
  };
  std::shared_ptr<const void> comparator_;
  std::unique_ptr<ftsort_result, release> native_;
};

/** Sorted records: a range over blocks. */
template <class T>
class sorted : public result<block<T>> {
 public:
  using result<block<T>>::result;

  /** Copies the records of all blocks of this rank into one vector. */
  std::vector<T> dense() const &
  {
    std::size_t count = 0;
    for (const block<T> &part : *this) count += part.size();
    std::vector<T> all;
    all.reserve(count);
    for (const block<T> &part : *this) {
      if constexpr (std::is_copy_assignable_v<T>)
        all.insert(all.end(), part.begin(), part.end());
      else
        for (const T &one : part) all.push_back(one);
    }
    return all;
  }

  /** Moves the records of all blocks of this rank into one vector, and releases the blocks. */
  std::vector<T> dense() &&
  {
    std::vector<T> all = static_cast<const sorted &>(*this).dense();
    this->native_.reset();
    return all;
  }
};

/** A result with several columns: a range over `rows`. */
template <class... Columns>
using table = result<rows<Columns...>>;

/** A protected input: the records of this rank and the redundancy for other ranks. Used with the group that made it. */
template <class T>
class input {
 public:
  input(ftsort_input *native, order<T> records) : records_(std::move(records)), native_(native) {}

  /** Returns the input of C, which belongs to this object. */
  ftsort_input *native() const { return native_.get(); }
  const order<T> &records() const { return records_; }

 private:
  struct release {
    void operator()(ftsort_input *native) const { ftsort_input_free(native); }
  };
  /* Members are released from the last one up: the input before the comparator that it uses. */
  order<T> records_;
  std::unique_ptr<ftsort_input, release> native_;
};

}  // namespace ftsort

#endif /* FTSORT_RESULT_HPP */
