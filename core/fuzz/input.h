#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace slipstream::fuzz {

/// The bytes that the fuzzer chose. After their end, all numbers are 0.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return left_.size(); }

  template <typename Number>
  Number number() {
    static_assert(std::is_trivially_copyable_v<Number>);
    Number value{};
    const std::size_t count = std::min(sizeof value, left_.size());
    if (count > 0) std::memcpy(&value, left_.data(), count);
    left_ = left_.subspan(count);
    return value;
  }
  /// A number below `end`, from one byte.
  std::uint32_t below(std::uint32_t end) { return number<std::uint8_t>() % end; }
  bool coin() { return (number<std::uint8_t>() & 1U) != 0; }

  /// The next bytes in memory of their own, so that a sanitizer sees each access beyond them. There
  /// are fewer than `count` if the input ends.
  std::vector<std::byte> bytes(std::size_t count) {
    const auto taken = std::as_bytes(left_.first(std::min(count, left_.size())));
    left_ = left_.subspan(taken.size());
    return {taken.begin(), taken.end()};
  }
  std::string text(std::size_t count) {
    const std::vector<std::byte> taken = bytes(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string rest() { return text(left_.size()); }

 private:
  std::span<const std::uint8_t> left_;
};

/// Ends the process, as a sanitizer does, if a parser breaks its promise.
inline void expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace slipstream::fuzz

/// The program that the fuzzer, or the replay, runs for each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
