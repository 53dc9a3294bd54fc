#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "negotiation/bits.h"
#include "negotiation/metadata.h"
#include "negotiation/table.h"

namespace slipstream {

/// What was submitted on this rank and is not ready, by name.
class Pending {
 public:
  struct Item {
    Metadata metadata;
    std::uint64_t token = 0;
    std::uint64_t unit = 0;               ///< equal for those submitted together; 0: alone
    std::optional<std::uint32_t> number;  ///< in the table, where that agrees with the metadata
    TimePoint submitted{}, report_at{};
  };

  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] const Item* find(const std::string& name) const;
  [[nodiscard]] std::size_t num_news() const { return unnumbered_.size(); }
  /// Of the items without a number, in the order in which they were submitted.
  [[nodiscard]] std::vector<Metadata> news() const;
  /// No item is to be reported before.
  [[nodiscard]] TimePoint next_report() const { return empty() ? TimePoint::max() : next_report_; }

  void add(Item item, const TensorTable& table);
  /// Items that were submitted together.
  void add_unit(std::vector<Item> unit, const TensorTable& table);
  /// Looks the items without a number up again. True when one has got its number.
  bool number(const TensorTable& table);
  std::optional<Item> take(std::uint32_t number);
  /// The item and those submitted with it; none if it is not there.
  std::vector<Item> take_unit(const std::string& name);
  std::vector<Item> take_all();

  /// The numbers of all items, and of those whose whole unit has numbers.
  [[nodiscard]] const Bits& numbered() const { return numbered_; }
  [[nodiscard]] const Bits& complete() const { return complete_; }
  /// Those to be reported by `now`.
  [[nodiscard]] Bits overdue(TimePoint now);
  /// These have been reported: again after twice the time.
  void put_off(std::span<const std::uint64_t> reported, TimePoint now);

 private:
  struct Unit {
    std::vector<std::string_view> names;
    std::size_t unnumbered = 0;
  };
  using Items = std::unordered_map<std::string_view, Item>;  // by the name in the item itself

  void insert(Item item, const TensorTable& table);
  bool give_number(Item& item, const TensorTable& table);
  Item remove(const Item& item);
  void find_next_report();

  Items items_;
  std::vector<Item*> by_number_;  // nullptr where there is none
  std::unordered_map<std::uint64_t, Unit> units_;
  std::vector<std::string_view> unnumbered_;
  std::uint64_t next_unit_ = 1;
  TimePoint next_report_ = TimePoint::max();
  Bits numbered_, complete_;
};

}  // namespace slipstream
