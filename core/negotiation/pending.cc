#include "negotiation/pending.h"

#include <algorithm>
#include <utility>

namespace slipstream {

const Pending::Item* Pending::find(const std::string& name) const {
  const auto found = items_.find(name);
  return found == items_.end() ? nullptr : &found->second;
}

std::vector<Metadata> Pending::news() const {
  std::vector<Metadata> news;
  for (const std::string& name : unnumbered_) news.push_back(items_.at(name).metadata);
  return news;
}

void Pending::find_next_report() {
  next_report_ = TimePoint::max();
  for (const auto& [name, item] : items_) next_report_ = std::min(next_report_, item.report_at);
}

bool Pending::give_number(Item& item, const TensorTable& table) {
  const auto number = table.find(item.metadata.name());
  if (!number || !(table[*number].metadata == item.metadata)) return false;
  item.number = number;
  numbered_.set(*number);
  Unit& unit = units_.at(item.unit);
  if (--unit.unnumbered > 0) return true;
  for (const std::string& name : unit.names) complete_.set(*items_.at(name).number);
  return true;
}

void Pending::add(std::vector<Item> unit, const TensorTable& table) {
  const std::uint64_t id = next_unit_++;
  Unit& made = units_[id];
  made.unnumbered = unit.size();
  for (const Item& item : unit) made.names.push_back(item.metadata.name());
  for (Item& item : unit) {
    item.unit = id;
    next_report_ = std::min(next_report_, item.report_at);
    std::string name = item.metadata.name();
    items_.emplace(std::move(name), std::move(item));
  }
  for (const std::string& name : made.names) {
    if (!give_number(items_.at(name), table)) unnumbered_.push_back(name);
  }
}

bool Pending::number(const TensorTable& table) {
  const std::size_t removed = std::erase_if(
      unnumbered_, [&](const std::string& name) { return give_number(items_.at(name), table); });
  return removed > 0;
}

void Pending::erase(const Item& item) {
  if (item.number) {
    numbered_.clear(*item.number);
    complete_.clear(*item.number);
  } else {
    std::erase(unnumbered_, item.metadata.name());
  }
}

std::optional<Pending::Item> Pending::take(const std::string& name) {
  auto node = items_.extract(name);
  if (node.empty()) return std::nullopt;
  Item item = std::move(node.mapped());
  erase(item);
  Unit& unit = units_.at(item.unit);
  std::erase(unit.names, name);
  if (unit.names.empty()) units_.erase(item.unit);
  return item;
}

std::vector<Pending::Item> Pending::take_unit(const std::string& name) {
  const Item* const item = find(name);
  if (item == nullptr) return {};
  const std::vector<std::string> names = units_.at(item->unit).names;
  std::vector<Item> taken;
  for (const std::string& each : names) taken.push_back(*take(each));
  return taken;
}

std::vector<Pending::Item> Pending::take_all() {
  std::vector<Item> taken;
  for (auto& [name, item] : items_) taken.push_back(std::move(item));
  std::ranges::sort(taken, {}, &Item::unit);
  *this = Pending();
  return taken;
}

Bits Pending::overdue(TimePoint now) {
  Bits overdue;
  if (now < next_report()) return overdue;
  for (const auto& [name, item] : items_) {
    if (item.number && item.report_at <= now) overdue.set(*item.number);
  }
  find_next_report();
  return overdue;
}

void Pending::put_off(std::span<const std::uint64_t> reported, TimePoint now) {
  for (auto& [name, item] : items_) {
    if (!item.number) continue;
    const std::size_t word = *item.number / Bits::kPerWord;
    const bool is_reported =
        word < reported.size() && (reported[word] >> (*item.number % Bits::kPerWord) & 1U) != 0;
    if (is_reported) item.report_at = now + (now - item.submitted);
  }
  find_next_report();
}

}  // namespace slipstream
