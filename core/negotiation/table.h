#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiation/metadata.h"

namespace slipstream {

/// The tensors that are known, and their numbers. All ranks change it alike, so it is the same on
/// all; the lowest free number is given first.
class TensorTable {
 public:
  struct Entry {
    Metadata metadata;
    std::uint64_t used = 0;  ///< the round in which it was new or ready last
  };

  [[nodiscard]] std::size_t size() const { return numbers_.size(); }
  /// Words of a set of all numbers.
  [[nodiscard]] std::size_t num_words() const;
  [[nodiscard]] std::optional<std::uint32_t> find(const std::string& name) const;
  Entry& operator[](std::uint32_t number) { return *entries_[number]; }
  const Entry& operator[](std::uint32_t number) const { return *entries_[number]; }

  std::uint32_t add(const Metadata& metadata, std::uint64_t round);
  void remove(std::uint32_t number);
  /// Removes up to `count` of the `candidates` (a set), those that were used the longest time ago.
  void remove_oldest(std::size_t count, std::span<const std::uint64_t> candidates);

 private:
  std::vector<std::optional<Entry>> entries_;  // by number
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_;
};

}  // namespace slipstream
