#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

/// A set of tensor numbers, in the form in which it is sent.
class Bits {
 public:
  static constexpr std::uint32_t kPerWord = 64;

  void set(std::uint32_t bit) {
    if (bit / kPerWord >= words_.size()) words_.resize(bit / kPerWord + 1);
    words_[bit / kPerWord] |= std::uint64_t{1} << (bit % kPerWord);
  }
  void clear(std::uint32_t bit) {
    if (bit / kPerWord < words_.size()) {
      words_[bit / kPerWord] &= ~(std::uint64_t{1} << (bit % kPerWord));
    }
  }
  /// The first words of the set, with zeros behind its end.
  [[nodiscard]] std::vector<std::uint64_t> words(std::size_t count) const {
    std::vector<std::uint64_t> padded(words_);
    padded.resize(count);
    return padded;
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// Calls `visit` with every number in the set, in ascending order.
template <typename Visit>
void for_each_bit(std::span<const std::uint64_t> words, const Visit& visit) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::uint64_t left = words[i]; left != 0; left &= left - 1) {
      visit(static_cast<std::uint32_t>(i * Bits::kPerWord) +
            static_cast<std::uint32_t>(std::countr_zero(left)));
    }
  }
}

}  // namespace slipstream
