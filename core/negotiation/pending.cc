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
  for (const std::string_view name : unnumbered_) news.push_back(items_.at(name).metadata);
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
  if (*number >= by_number_.size()) by_number_.resize(*number + std::size_t{1});
  by_number_[*number] = &item;
  if (item.unit == 0) {
    complete_.set(*number);
    return true;
  }
  Unit& unit = units_.at(item.unit);
  if (--unit.unnumbered > 0) return true;
  for (const std::string_view name : unit.names) complete_.set(*items_.at(name).number);
  return true;
}

void Pending::insert(Item item, const TensorTable& table) {
  next_report_ = std::min(next_report_, item.report_at);
  const std::string_view name = item.metadata.name();
  Item& inserted = items_.emplace(name, std::move(item)).first->second;
  if (!give_number(inserted, table)) unnumbered_.push_back(name);
}

void Pending::add(Item item, const TensorTable& table) {
  item.unit = 0;
  insert(std::move(item), table);
}

void Pending::add_unit(std::vector<Item> unit, const TensorTable& table) {
  const std::uint64_t id = next_unit_++;
  Unit& made = units_[id];
  made.unnumbered = unit.size();
  for (const Item& item : unit) made.names.emplace_back(item.metadata.name());
  for (Item& item : unit) {
    item.unit = id;
    insert(std::move(item), table);
  }
}

bool Pending::number(const TensorTable& table) {
  const std::size_t removed = std::erase_if(unnumbered_, [&](const std::string_view name) {
    return give_number(items_.at(name), table);
  });
  return removed > 0;
}

Pending::Item Pending::remove(const Item& removed) {
  const std::string_view name = removed.metadata.name();
  Item item = std::move(items_.extract(name).mapped());
  if (item.number) {
    numbered_.clear(*item.number);
    complete_.clear(*item.number);
    by_number_[*item.number] = nullptr;
  } else {
    std::erase(unnumbered_, name);
  }
  if (item.unit == 0) return item;
  Unit& unit = units_.at(item.unit);
  std::erase(unit.names, name);
  if (unit.names.empty()) units_.erase(item.unit);
  return item;
}

std::optional<Pending::Item> Pending::take(std::uint32_t number) {
  if (number >= by_number_.size() || by_number_[number] == nullptr) return std::nullopt;
  return remove(*by_number_[number]);
}

std::vector<Pending::Item> Pending::take_unit(const std::string& name) {
  const auto found = items_.find(name);
  if (found == items_.end()) return {};
  std::vector<Item> taken;
  if (found->second.unit == 0) {
    taken.push_back(remove(found->second));
    return taken;
  }
  const std::vector<std::string_view> names = units_.at(found->second.unit).names;
  for (const std::string_view each : names) taken.push_back(remove(items_.at(each)));
  return taken;
}

std::vector<Pending::Item> Pending::take_all() {
  std::vector<Item> taken;
  for (auto& [name, item] : items_) taken.push_back(std::move(item));
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
