#include "negotiation/table.h"

#include <algorithm>
#include <utility>

#include "negotiation/bits.h"

namespace slipstream {

std::size_t TensorTable::num_words() const {
  return (entries_.size() + Bits::kPerWord - 1) / Bits::kPerWord;
}

std::optional<std::uint32_t> TensorTable::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::uint32_t TensorTable::add(const Metadata& metadata, std::uint64_t round) {
  auto number = static_cast<std::uint32_t>(entries_.size());
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    number = free_.top();
    free_.pop();
  }
  entries_[number] = Entry{metadata, round};
  numbers_[metadata.name()] = number;
  return number;
}

void TensorTable::remove(std::uint32_t number) {
  numbers_.erase(entries_[number]->metadata.name());
  entries_[number].reset();
  free_.push(number);
}

void TensorTable::remove_oldest(std::size_t count, std::span<const std::uint64_t> candidates) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_age;
  for_each_bit(candidates, [&](std::uint32_t number) {
    if (number < entries_.size() && entries_[number]) {
      by_age.emplace_back(entries_[number]->used, number);
    }
  });
  std::ranges::sort(by_age);
  by_age.resize(std::min(count, by_age.size()));
  for (const auto& [used, number] : by_age) remove(number);
}

}  // namespace slipstream
