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

/// The known tensors and their numbers. All ranks make the same changes, so the table is the same
/// everywhere. A new tensor gets the lowest free number.
class TensorTable {
 public:
  struct Entry {
    Metadata metadata;
    std::uint64_t used = 0;  ///< last round in which the tensor was new or ready
  };

  [[nodiscard]] std::size_t size() const { return numbers_.size(); }
  /// Number of words of a set of all numbers.
  [[nodiscard]] std::size_t num_words() const;
  [[nodiscard]] std::optional<std::uint32_t> find(const std::string& name) const;
  /// Whether a tensor has this number.
  [[nodiscard]] bool has(std::uint32_t number) const {
    return number < entries_.size() && entries_[number].has_value();
  }
  Entry& operator[](std::uint32_t number) { return *entries_[number]; }
  const Entry& operator[](std::uint32_t number) const { return *entries_[number]; }

  std::uint32_t add(const Metadata& metadata, std::uint64_t round);
  void remove(std::uint32_t number);
  /// Removes up to `count` of the `candidates` (a set), beginning with those that were used least
  /// recently.
  void remove_oldest(std::size_t count, std::span<const std::uint64_t> candidates);

 private:
  std::vector<std::optional<Entry>> entries_;  // by number
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_;
};

}  // namespace slipstream
