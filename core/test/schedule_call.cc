#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "test/reduce_reference.h"
#include "test/schedule.h"

// The sizes, the contents and the description of a scheduled call.
namespace slipstream::test {
namespace {

std::uint64_t total(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

bool is_reduction(const ScheduledCall& call) {
  const Collective collective = call.request.collective;
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

/// A whole number. Sums of four of them, and products, are exact in every floating-point dtype.
int draw_whole(std::uint64_t bits, ReduceOp op) {
  constexpr std::array kFactors{1, 2, -1, -2};
  if (op == ReduceOp::kProduct) return kFactors.at(bits % kFactors.size());
  return static_cast<int>(bits % 9) - 4;
}

/// Products of such numbers have no part that is zero, whose sign would depend on the order.
std::array<int, 2> draw_complex(std::uint64_t bits, ReduceOp op) {
  constexpr std::array<std::array<int, 2>, 4> kFactors{{{1, 2}, {-2, 1}, {-1, -2}, {2, -1}}};
  if (op == ReduceOp::kProduct) return kFactors.at(bits % kFactors.size());
  return {draw_whole(bits, op), draw_whole(bits >> 8, op)};
}

/// All values that are not zero have the same magnitude, on all ranks together too, so that int8
/// represents them exactly whatever its blocks are.
int draw_for_int8(std::size_t index, std::uint32_t rank, std::uint64_t seed) {
  const std::uint64_t bits = (index * 0x9e37'79b9'7f4a'7c15U + seed) >> 40;
  return (static_cast<int>(bits % 3) - 1) * (127 << rank);
}

template <typename T>
void put(std::span<std::byte> memory, std::size_t index, T value) {
  std::memcpy(memory.data() + index * sizeof(T), &value, sizeof(T));
}

void put_whole(std::span<std::byte> memory, DType dtype, std::size_t index, int value) {
  const auto real = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat16:
      return put(memory, index, reference::Float16::of(real));
    case DType::kBFloat16:
      return put(memory, index, reference::BFloat16::of(real));
    case DType::kFloat32:
    case DType::kComplex64:
      return put(memory, index, real);
    default:
      return put(memory, index, static_cast<double>(real));
  }
}

}  // namespace

CallSizes sizes_of(const ScheduledCall& call, std::uint32_t rank, std::uint32_t size) {
  const Request& request = call.request;
  const std::size_t element = size_of(request.dtype);
  const std::size_t own = request.count * element, all = own * size;
  const bool is_root = rank == request.root;
  switch (request.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
      return {own, own};
    case Collective::kAllGather:
      if (request.receive_counts.empty()) return {own, all};
      return {request.receive_counts[rank] * element, total(request.receive_counts) * element};
    case Collective::kGather:
      return {own, is_root ? all : 0};
    case Collective::kReduceScatter:
      return {all, own};
    case Collective::kScatter:
      return {is_root ? all : 0, own};
    case Collective::kAllToAll: {
      if (call.parts.empty()) return {all, all};
      std::uint64_t received = 0;
      for (const auto& sent : call.parts) received += sent[rank];
      return {total(call.parts[rank]) * element, received * element};
    }
    case Collective::kSend:
      return {is_root ? own : 0, rank == call.to ? own : 0};
    default:
      return {};
  }
}

PartOffsets offsets_of(const ScheduledCall& call, std::uint32_t rank) {
  PartOffsets offsets{{0}, {0}};
  for (std::size_t i = 0; i < call.parts.size(); ++i) {
    const std::size_t element = size_of(call.request.dtype);
    offsets.sent.push_back(offsets.sent.back() + call.parts[rank][i] * element);
    offsets.received.push_back(offsets.received.back() + call.parts[i][rank] * element);
  }
  return offsets;
}

bool has_result(const ScheduledCall& call, std::uint32_t rank) {
  const Collective collective = call.request.collective;
  const bool at_root = collective == Collective::kReduce || collective == Collective::kGather;
  return !at_root || call.request.root == rank;
}

void fill(std::span<std::byte> input, const ScheduledCall& call, std::uint32_t rank,
          std::uint64_t seed) {
  const Request& request = call.request;
  std::mt19937_64 random(seed * 8 + rank);
  const DTypeKind kind = kDTypeTraits.at(static_cast<std::size_t>(request.dtype)).kind;
  if (!is_reduction(call) || kind == DTypeKind::kInteger || kind == DTypeKind::kBool) {
    for (std::size_t at = 0; at < input.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t bits = random();
      std::memcpy(input.data() + at, &bits, std::min(sizeof(bits), input.size() - at));
    }
    return;
  }
  for (std::size_t i = 0; i < input.size() / size_of(request.dtype); ++i) {
    if (kind == DTypeKind::kComplex) {
      const auto [real, imaginary] = draw_complex(random(), request.op);
      put_whole(input, request.dtype, 2 * i, real);
      put_whole(input, request.dtype, 2 * i + 1, imaginary);
    } else if (request.codec == Codec::kInt8) {
      put_whole(input, request.dtype, i, draw_for_int8(i, rank, seed));
    } else {
      put_whole(input, request.dtype, i, draw_whole(random(), request.op));
    }
  }
}

std::vector<float> residual_of(const ScheduledCall& call, std::uint32_t rank) {
  std::vector<float> residual(call.request.count);
  for (std::size_t i = 0; i < residual.size(); ++i) {
    residual[i] = static_cast<float>((i * 7 + rank) % 5);
  }
  return residual;
}

std::string describe(const ScheduledCall& call) {
  std::string text =
      concat(describe(call.request), " in group ", call.group, ", root ", call.request.root);
  if (call.kind == ScheduledCall::Kind::kMessage) text += concat(", to ", call.to);
  if (call.kind == ScheduledCall::Kind::kExchange) text += ", by messages";
  if (call.request.codec != Codec::kNone) text += concat(", ", name_of(call.request.codec));
  if (call.has_residual) text += ", with a residual";
  return text + (call.on_host ? ", of the CPU" : "");
}

std::string describe(const Trouble& trouble) {
  constexpr std::array kNames{"nothing fails",
                              "is cut off",
                              "aborts",
                              "closes",
                              "closes its engine",
                              "has a device whose call",
                              "has a device whose command"};
  const std::string name = kNames.at(static_cast<std::size_t>(trouble.kind));
  if (trouble.kind == Trouble::Kind::kNone) return name;
  return concat("rank ", trouble.rank, " ", name, " (group ", trouble.group, ", call ",
                trouble.call, ", number ", trouble.device_number, " of the device)");
}

}  // namespace slipstream::test
