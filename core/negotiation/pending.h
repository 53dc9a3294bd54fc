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

/// The tensors that this rank has submitted and that are not ready yet, by name.
class Pending {
 public:
  struct Item {
    Metadata metadata;
    std::uint64_t token = 0;
    std::uint64_t unit = 0;  ///< equal for tensors that were submitted together; 0: alone
    /// Number in the table, if the table agrees with the metadata.
    std::optional<std::uint32_t> number;
    TimePoint submitted{}, report_at{};
  };

  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] const Item* find(const std::string& name) const;
  [[nodiscard]] std::size_t num_news() const { return unnumbered_.size(); }
  /// The metadata of items without a number, in the order of submission.
  [[nodiscard]] std::vector<Metadata> news() const;
  /// The earliest time at which an item must be reported.
  [[nodiscard]] TimePoint next_report() const { return empty() ? TimePoint::max() : next_report_; }

  void add(Item item, const TensorTable& table);
  /// Adds items that were submitted together.
  void add_unit(std::vector<Item> unit, const TensorTable& table);
  /// Looks up the items without a number again. Returns whether any got its number.
  bool number(const TensorTable& table);
  std::optional<Item> take(std::uint32_t number);
  /// Removes and returns the item with those that were submitted together with it; empty if it does
  /// not exist.
  std::vector<Item> take_unit(const std::string& name);
  std::vector<Item> take_all();

  /// The numbers of all items, and the numbers of items whose whole unit has numbers.
  [[nodiscard]] const Bits& numbered() const { return numbered_; }
  [[nodiscard]] const Bits& complete() const { return complete_; }
  /// The numbers of items whose report is due at `now`.
  [[nodiscard]] Bits overdue(TimePoint now);
  /// Records that these items were reported; their next report is due after twice the time.
  void put_off(std::span<const std::uint64_t> reported, TimePoint now);

 private:
  struct Unit {
    std::vector<std::string_view> names;
    std::size_t unnumbered = 0;
  };
  using Items = std::unordered_map<std::string_view, Item>;  // the key is part of the item itself

  void insert(Item item, const TensorTable& table);
  bool give_number(Item& item, const TensorTable& table);
  Item remove(const Item& item);
  void find_next_report();

  Items items_;
  std::vector<Item*> by_number_;  // nullptr if there is no item
  std::unordered_map<std::uint64_t, Unit> units_;
  std::vector<std::string_view> unnumbered_;
  std::uint64_t next_unit_ = 1;
  TimePoint next_report_ = TimePoint::max();
  Bits numbered_, complete_;
};

}  // namespace slipstream
