#include "topology/layout.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

using Ranks = std::vector<std::uint32_t>;

/// Groups the ranks with equal labels, in the order in which the labels first appear.
template <typename Label>
std::vector<Ranks> grouped(const Ranks& ranks, const Label& label) {
  std::vector<std::pair<std::string, Ranks>> found;
  for (const std::uint32_t rank : ranks) {
    const std::string& name = label(rank);
    const auto known = std::ranges::find(found, name, &std::pair<std::string, Ranks>::first);
    if (known == found.end()) {
      found.emplace_back(name, Ranks{rank});
    } else {
      known->second.push_back(rank);
    }
  }
  std::vector<Ranks> groups;
  for (auto& [name, members] : found) groups.push_back(std::move(members));
  return groups;
}

bool equally_long(const std::vector<Ranks>& groups) {
  return std::ranges::all_of(groups,
                             [&](const Ranks& each) { return each.size() == groups[0].size(); });
}

/// The ranks in the order of the grid (host by host, rack by rack), and the sizes of its
/// dimensions.
struct Grid {
  Ranks order;
  Ranks sizes;
};

Grid find_grid(std::span<const Place> places) {
  Ranks all(places.size());
  std::iota(all.begin(), all.end(), 0U);
  const auto racks =
      grouped(all, [&](std::uint32_t rank) -> const std::string& { return places[rank].rack; });
  std::vector<Ranks> hosts;
  std::vector<Ranks> hosts_of_racks;  // one entry for each host of the rack; only the number counts
  Grid grid;
  for (const Ranks& rack : racks) {
    const auto inside =
        grouped(rack, [&](std::uint32_t rank) -> const std::string& { return places[rank].host; });
    for (const Ranks& host : inside) {
      grid.order.insert(grid.order.end(), host.begin(), host.end());
      hosts.push_back(host);
    }
    hosts_of_racks.emplace_back(inside.size());
  }
  const auto count = static_cast<std::uint32_t>(hosts.size());
  if (!equally_long(hosts)) {
    grid.sizes = {static_cast<std::uint32_t>(places.size())};
  } else if (const auto local = static_cast<std::uint32_t>(hosts[0].size());
             equally_long(hosts_of_racks)) {
    const auto num_racks = static_cast<std::uint32_t>(racks.size());
    grid.sizes = {local, count / num_racks, num_racks};
  } else {
    grid.sizes = {local, count};
  }
  return grid;
}

/// The line of the grid through position `at`: `size` positions with distance `stride`.
Dimension line(const Ranks& order, std::uint32_t at, std::uint32_t stride, std::uint32_t size) {
  Dimension dimension;
  dimension.index = at / stride % size;
  const std::uint32_t first = at - dimension.index * stride;
  for (std::uint32_t i = 0; i < size; ++i) dimension.members.push_back(order[first + i * stride]);
  return dimension;
}

}  // namespace

std::string identify_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> network{};
  if (::readlink("/proc/self/ns/net", network.data(), network.size() - 1) < 0) network[0] = '\0';
  return boot + "/" + network.data();
}

Layout make_layout(std::span<const Place> places, std::uint32_t rank,
                   std::span<const std::uint32_t> sizes) {
  const auto count = static_cast<std::uint32_t>(places.size());
  Grid grid = find_grid(places);
  const auto at =
      static_cast<std::uint32_t>(std::ranges::find(grid.order, rank) - grid.order.begin());
  Layout layout;
  layout.even = grid.sizes.size() > 1;
  const std::uint32_t local = layout.even ? grid.sizes[0] : 1;
  layout.local = line(grid.order, at, 1, local);
  layout.hosts = line(grid.order, at, local, count / local);
  std::uint32_t place = at;
  if (!sizes.empty()) {
    const auto product = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{1},
                                         std::multiplies<std::uint64_t>());
    if (product != count) {
      fail(ErrorKind::kConfig, "the sizes of SLIPSTREAM_DIMENSIONS multiply to ", product,
           " ranks, but the job has ", count, "; choose sizes whose product is ", count);
    }
    grid.sizes.assign(sizes.begin(), sizes.end());
    std::iota(grid.order.begin(), grid.order.end(), 0U);
    place = rank;
  }
  std::uint32_t stride = 1;
  for (const std::uint32_t size : grid.sizes) {
    if (size > 1) layout.dimensions.push_back(line(grid.order, place, stride, size));
    stride *= size;
  }
  if (layout.dimensions.empty()) layout.dimensions.push_back(layout.local);
  return layout;
}

}  // namespace slipstream
