#include "negotiation/rounds.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace slipstream {
namespace {

// Flags in the first word of a round; sets of tensors follow.
constexpr std::uint64_t kNoNews = 1, kNoStall = 2, kJoined = 4, kNotJoined = 8;

constexpr std::size_t kMostOwed = 4096;
constexpr std::size_t kMostReported = 20;
constexpr std::uint64_t kFnvPrime = 0x100000001b3U;

/// FNV-1a, which is the same on every rank.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325U) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

std::uint64_t hash_of(std::span<const Submission> unit) {
  std::uint64_t hash = hash_of("fused");
  for (const Submission& each : unit) {
    hash = hash_of(std::to_string(each.tensor->name.size()), hash);
    hash = hash_of(each.tensor->name, hash);
  }
  return hash;
}

std::vector<Metadata> read_all(std::string_view bytes) {
  std::vector<Metadata> all;
  while (!bytes.empty()) all.push_back(read(bytes));
  return all;
}

std::string bytes_of(std::span<const std::uint64_t> words) {
  return {reinterpret_cast<const char*>(words.data()), words.size_bytes()};
}

/// The bytes as whole words.
std::vector<std::uint64_t> words_of_bytes(const std::string& bytes) {
  std::vector<std::uint64_t> words(bytes.size() / sizeof(std::uint64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof words[0]);
  return words;
}

/// "rank 1" or "ranks 1, 2", from the numbers with commas between.
std::string ranks(const std::string& numbers) {
  return concat(numbers.find(',') == std::string::npos ? "rank " : "ranks ", numbers);
}

bool has(std::span<const std::uint64_t> words, std::uint32_t number) {
  return (words[number / Bits::kPerWord] >> (number % Bits::kPerWord) & 1U) != 0;
}

}  // namespace

Rounds::Rounds(Channel& channel, const NegotiationOptions& options, Log log)
    : channel_(channel), options_(options), log_(std::move(log)) {}

std::vector<FailedTensor> Rounds::add(std::span<const Submission> unit, TimePoint now) {
  for (const Submission& each : unit) {
    if (owed_.empty()) break;
    auto owed = owed_.extract(each.tensor->name);
    if (owed.empty()) continue;
    std::vector<FailedTensor> failed;
    for (const Submission& one : unit) {
      failed.push_back({one.tensor, one.token, owed.mapped()});
    }
    return failed;
  }
  fresh_ = true;
  const TimePoint report_at = now + options_.stall_after;
  if (unit.size() == 1) {
    pending_.add({{unit[0].tensor}, unit[0].token, 0, {}, now, report_at}, table_);
    return {};
  }
  const std::uint64_t hash = hash_of(unit);
  std::vector<Pending::Item> items;
  for (const Submission& each : unit) {
    const Metadata metadata{each.tensor, static_cast<std::uint32_t>(unit.size()), hash};
    items.push_back({metadata, each.token, 0, {}, now, report_at});
  }
  pending_.add_unit(std::move(items), table_);
  return {};
}

Rounds::Words Rounds::words_of(const Bits& bits) const {
  if (joined_in_ > 0) return Words(table_.num_words(), ~std::uint64_t{0});
  return bits.words(table_.num_words());
}

Outcome Rounds::run() {
  ++round_;
  fresh_ = false;
  if (wants_to_join()) joined_in_ = round_;
  const bool stalls = Clock::now() >= pending_.next_report();
  Words words{(pending_.num_news() == 0 ? kNoNews : 0) | (stalls ? 0 : kNoStall) |
              (joined_in_ > 0 ? kJoined : kNotJoined)};
  const Words own = words_of(pending_.complete());
  words.insert(words.end(), own.begin(), own.end());
  channel_.and_words(words);

  Outcome outcome;
  outcome.round = round_;
  const std::uint64_t flags = words[0];
  outcome.some_joined = (flags & kNotJoined) == 0;
  // If no rank could submit anything, all bits would be ones.
  const bool all_joined = (flags & kJoined) != 0;
  if (!all_joined) collect_ready(std::span(words).subspan(1), outcome);
  if ((flags & kNoNews) == 0) exchange_news(outcome);
  if ((flags & kNoStall) == 0) report_stall();
  if (all_joined) outcome.last_joined = find_last_joined();
  stats_.rounds = round_;
  stats_.void_rounds += outcome.ready.empty() ? 1 : 0;
  stats_.tensors += outcome.ready.size();
  return outcome;
}

AgreedTensor Rounds::agree(std::uint32_t number, std::uint32_t fused) {
  TensorTable::Entry& entry = table_[number];
  entry.used = round_;
  const auto item = pending_.take(number);
  if (!item) return {entry.metadata.tensor, false, 0, fused};
  return {item->metadata.tensor, true, item->token, fused};
}

/// Collects the ready tensors in the order of their numbers; a fused unit comes at the position of
/// its first tensor.
void Rounds::collect_ready(std::span<const std::uint64_t> ready, Outcome& outcome) {
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> units;
  std::vector<std::uint32_t> order;
  for_each_bit(ready, [&](std::uint32_t number) {
    if (!table_.has(number)) {
      fail(ErrorKind::kPeer, "another rank of group '", channel_.name(), "' has submitted tensor ",
           number, ", which no rank has described");
    }
    const std::uint64_t hash = table_[number].metadata.fused_hash;
    if (hash != 0) {
      auto& members = units[hash];
      members.push_back(number);
      if (members.size() > 1) return;
    }
    order.push_back(number);
  });
  std::uint32_t fused = 0;
  for (const std::uint32_t number : order) {
    const std::uint64_t hash = table_[number].metadata.fused_hash;
    if (hash == 0) {
      outcome.ready.push_back(agree(number, 0));
      continue;
    }
    ++fused;
    for (const std::uint32_t member : units[hash]) outcome.ready.push_back(agree(member, fused));
  }
}

/// Exchanges the fingerprints of all ranks; then the metadata that some ranks lack, from the first
/// rank that has it.
std::vector<Metadata> Rounds::gather_news() {
  std::unordered_map<std::uint64_t, Metadata> known;
  std::string fingerprints;
  for (Metadata& each : pending_.news()) {
    std::string bytes;
    write(bytes, each);
    const std::uint64_t fingerprint = hash_of(bytes);
    fingerprints += bytes_of({&fingerprint, 1});
    known.emplace(fingerprint, std::move(each));
  }
  struct Announced {
    std::uint32_t first = 0, count = 0;
  };
  std::unordered_map<std::uint64_t, Announced> announced;
  std::vector<std::uint64_t> order;
  const std::vector<std::string> lists = channel_.gather(fingerprints);
  for (std::uint32_t rank = 0; rank < lists.size(); ++rank) {
    for (const std::uint64_t fingerprint : words_of_bytes(lists[rank])) {
      const auto [at, is_first] = announced.try_emplace(fingerprint, Announced{rank, 0});
      if (is_first) order.push_back(fingerprint);
      ++at->second.count;
    }
  }
  std::string told;
  const auto is_lacking = [&](std::uint64_t each) { return announced[each].count < lists.size(); };
  for (const std::uint64_t each : order) {
    if (is_lacking(each) && announced[each].first == channel_.rank()) write(told, known.at(each));
  }
  if (std::ranges::any_of(order, is_lacking)) {
    const std::vector<std::string> texts = channel_.gather(told);
    std::vector<std::string_view> left(texts.begin(), texts.end());
    for (const std::uint64_t each : order) {
      if (is_lacking(each)) known.try_emplace(each, read(left[announced[each].first]));
    }
  }
  std::vector<Metadata> news;
  for (const std::uint64_t each : order) news.push_back(known.at(each));
  return news;
}

void Rounds::exchange_news(Outcome& outcome) {
  ++stats_.introductions;
  const std::vector<Metadata> news = gather_news();
  make_room(news);
  std::vector<std::string> disputed;
  for (const Metadata& each : news) {
    const auto number = table_.find(each.name());
    if (!number) {
      table_.add(each, round_);
    } else if (!(table_[*number].metadata == each) &&
               std::ranges::find(disputed, each.name()) == disputed.end()) {
      disputed.push_back(each.name());
    }
  }
  if (!disputed.empty()) settle(disputed, outcome);
  if (pending_.number(table_)) fresh_ = true;
}

/// Forgets tensors that no rank has submitted, if there are too many tensors with the new ones.
void Rounds::make_room(std::span<const Metadata> news) {
  std::set<std::string_view> unknown;
  for (const Metadata& each : news) {
    if (!table_.find(each.name())) unknown.insert(each.name());
  }
  const std::size_t needed = table_.size() + unknown.size();
  if (needed <= options_.most_tensors) return;
  Words free = pending_.numbered().words(table_.num_words());
  for (std::uint64_t& word : free) word = ~word;
  if (!free.empty()) channel_.and_words(free);
  table_.remove_oldest(needed - options_.most_tensors, free);
}

/// All ranks tell what they passed, so all decide alike.
void Rounds::settle(const std::vector<std::string>& disputed, Outcome& outcome) {
  std::string own;
  for (const std::string& name : disputed) {
    const Pending::Item* const item = pending_.find(name);
    if (item != nullptr) write(own, item->metadata);
  }
  std::unordered_map<std::string, std::vector<std::pair<std::uint32_t, Metadata>>> passed;
  const std::vector<std::string> texts = channel_.gather(own);
  for (std::uint32_t rank = 0; rank < texts.size(); ++rank) {
    for (Metadata& each : read_all(texts[rank])) {
      passed[each.name()].emplace_back(rank, std::move(each));
    }
  }
  for (const std::string& name : disputed) {
    const auto& all = passed.at(name);
    const Metadata& first = all.front().second;
    if (std::ranges::all_of(all, [&](const auto& each) { return each.second == first; })) {
      TensorTable::Entry& entry = table_[*table_.find(name)];
      entry = {first, round_};
      continue;
    }
    std::string table;
    auto next = all.begin();
    for (std::uint32_t rank = 0; rank < texts.size(); ++rank) {
      const bool is_known = next != all.end() && next->first == rank;
      table += concat("\n  rank ", rank, ": ",
                      is_known ? describe(next->second) : std::string("nothing yet"));
      if (is_known) ++next;
    }
    const bool is_here =
        std::ranges::any_of(all, [&](const auto& each) { return each.first == channel_.rank(); });
    fail_disputed(name, table, is_here, outcome);
  }
}

void Rounds::fail_disputed(const std::string& name, const std::string& table, bool is_here,
                           Outcome& outcome) {
  table_.remove(*table_.find(name));
  const Error error(
      ErrorKind::kMismatch,
      concat("the ranks of group '", channel_.name(), "' disagree about tensor '", name,
             "':", table, "\nall ranks must pass the same operation, dtype, shape and root"));
  const auto unit = pending_.take_unit(name);
  for (const Pending::Item& item : unit) {
    outcome.failed.push_back({item.metadata.tensor, item.token, error});
  }
  if (is_here || joined_in_ > 0) return;
  if (owed_.size() >= kMostOwed) owed_.erase(owed_.begin());
  owed_.insert_or_assign(name, error);
}

void Rounds::report_stall() {
  ++stats_.stalls_reported;
  const TimePoint now = Clock::now();
  const std::size_t num_words = table_.num_words();
  const Words own = words_of(pending_.numbered());
  const std::vector<std::string> texts =
      channel_.gather(bytes_of(own) + bytes_of(pending_.overdue(now).words(num_words)));
  std::vector<Words> sets;
  Words overdue(num_words);
  for (const std::string& text : texts) {
    Words both = words_of_bytes(text);
    both.resize(2 * num_words);
    for (std::size_t i = 0; i < num_words; ++i) overdue[i] |= both[num_words + i];
    both.resize(num_words);
    sets.push_back(std::move(both));
  }
  pending_.put_off(overdue, now);
  if (channel_.rank() != 0) return;
  const std::string ended = forget_ended(sets);
  std::string report;
  std::size_t count = 0;
  for_each_bit(overdue, [&](std::uint32_t number) {
    if (++count <= kMostReported) report += "\n  " + describe_stalled(number, sets);
  });
  if (count > kMostReported) report += concat("\n  and ", count - kMostReported, " more");
  log_(LogLevel::kWarning, count, count == 1 ? " tensor" : " tensors", " of group '",
       channel_.name(), count == 1 ? "' has" : "' have", " waited for more than ",
       seconds(options_.stall_after), " s:", report, ended);
}

/// Forgets reported tensors that no longer wait. Returns one line for each.
std::string Rounds::forget_ended(std::span<const Words> sets) {
  std::string lines;
  std::erase_if(reported_, [&](const auto& reported) {
    const auto& [name, last] = reported;
    const auto number = table_.find(name);
    const auto waits = [&](const Words& set) { return has(set, *number); };
    if (number && table_[*number].used == last.used && std::ranges::any_of(sets, waits)) {
      return false;
    }
    lines += concat("\n  '", name, "' was reported before, and waits no longer");
    return true;
  });
  return lines;
}

/// Describes which ranks have submitted a tensor, and which of them since its last report.
std::string Rounds::describe_stalled(std::uint32_t number, std::span<const Words> sets) {
  const TensorTable::Entry& entry = table_[number];
  const auto [at, is_first] = reported_.try_emplace(
      entry.metadata.name(), Reported{entry.used, std::vector<bool>(sets.size())});
  std::vector<bool>& before = at->second.has_submitted;
  std::string submitted, missing, since;
  for (std::uint32_t rank = 0; rank < sets.size(); ++rank) {
    const auto add_to = [&](std::string& list) { list += concat(list.empty() ? "" : ", ", rank); };
    const bool is_submitted = has(sets[rank], number);
    add_to(is_submitted ? submitted : missing);
    if (is_submitted && !before[rank]) add_to(since);
    before[rank] = is_submitted;
  }
  std::string text =
      concat("'", entry.metadata.name(), "': submitted by ",
             missing.empty() ? "all ranks; it waits for the tensors that are fused with it"
                             : concat(ranks(submitted), "; not yet by ", ranks(missing)));
  if (is_first) return text;
  return text + (since.empty() ? "; nothing has changed since the last report"
                               : "; new since the last report: " + ranks(since));
}

/// Returns the rank that joined in the latest round; the highest one if there are several.
std::uint32_t Rounds::find_last_joined() {
  const std::vector<std::string> texts = channel_.gather(bytes_of({&joined_in_, 1}));
  std::uint64_t latest = 0;
  std::uint32_t last = 0;
  for (std::uint32_t rank = 0; rank < texts.size(); ++rank) {
    const std::uint64_t round = words_of_bytes(texts[rank]).at(0);
    if (round < latest) continue;
    latest = round;
    last = rank;
  }
  joining_ = false;
  joined_in_ = 0;
  return last;
}

std::vector<FailedTensor> Rounds::fail_all(const Error& cause) {
  std::vector<FailedTensor> failed;
  for (const Pending::Item& item : pending_.take_all()) {
    const std::string why = concat("tensor '", item.metadata.name(), "': ", cause.what());
    failed.push_back({item.metadata.tensor, item.token, Error(cause.kind(), why)});
  }
  return failed;
}

NegotiationStats Rounds::stats() const {
  NegotiationStats stats = stats_;
  stats.known_tensors = table_.size();
  stats.messages = channel_.messages();
  stats.payload_bytes = channel_.payload_bytes();
  return stats;
}

}  // namespace slipstream
