#include "test/staging_world.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gate/engine_thread.h"

namespace slipstream::test {
namespace {

constexpr std::size_t kTensorAlignment = 256;

std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> offsets{0};
  for (const std::size_t size : sizes) {
    const std::size_t whole = (size + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    offsets.push_back(offsets.back() + whole);
  }
  return offsets;
}

}  // namespace

void StagedEngine::add(const Transfer& transfer, std::uint32_t seed) {
  const std::scoped_lock lock(mutex_);
  const std::size_t slot = ring_.shape().slot_bytes;
  for (std::uint32_t i = 0; i < transfer.num_chunks; ++i) {
    const std::size_t offset = i * slot;
    chunks_.push_back({transfer.first + i, transfer.sequence + i, seed,
                       offset / sizeof(std::uint32_t), transfer.width_of(0, i)});
  }
}

std::optional<StagedEngine::Chunk> StagedEngine::take(std::mt19937_64& random) {
  const std::scoped_lock lock(mutex_);
  const std::size_t near = std::min<std::size_t>(chunks_.size(), ring_.shape().num_slots);
  if (near == 0 || stopped_) return std::nullopt;
  const std::size_t start = random() % near;
  for (std::size_t i = 0; i < near; ++i) {
    const auto at = chunks_.begin() + static_cast<std::ptrdiff_t>((start + i) % near);
    if (!ring_.ready(at->sequence)) continue;
    const Chunk chunk = *at;
    chunks_.erase(at);
    ++num_in_hand_;
    return chunk;
  }
  return std::nullopt;
}

void StagedEngine::handle(const Chunk& chunk) {
  const auto bytes = ring_.slot(chunk.sequence).first(chunk.num_bytes);
  const std::size_t wrong = wrong_words(bytes, chunk.seed, chunk.first_word);
  bool fails = false;
  {
    const std::scoped_lock lock(mutex_);
    num_wrong_words_ += wrong;
    fails = fails_;
    if (fails) nan_chunks_.insert(chunk.number);
  }
  if (fails) {
    ring_.release_nan(chunk.sequence, chunk.num_bytes);
  } else {
    fill_pattern(bytes, result_seed(chunk.seed), chunk.first_word);
    ring_.release(chunk.sequence);
  }
  const std::scoped_lock lock(mutex_);
  --num_in_hand_;
}

bool StagedEngine::turn(std::mt19937_64& random) {
  const EngineThread engine;
  const std::optional<Chunk> chunk = take(random);
  if (chunk) handle(*chunk);
  return chunk.has_value();
}

void StagedEngine::fail_operations() {
  const std::scoped_lock lock(mutex_);
  fails_ = true;
}

void StagedEngine::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  const auto nothing_in_hand = [&] {
    const std::scoped_lock lock(mutex_);
    return num_in_hand_ == 0;
  };
  expect(comes_true(nothing_in_hand), "the engine's threads to finish what they have in hand");
}

std::size_t StagedEngine::num_unfinished() const {
  const std::scoped_lock lock(mutex_);
  return chunks_.size() + num_in_hand_;
}

std::size_t StagedEngine::num_wrong_words() const {
  const std::scoped_lock lock(mutex_);
  return num_wrong_words_;
}

bool StagedEngine::is_nan(std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return nan_chunks_.contains(number);
}

EngineThreads::EngineThreads(StagedEngine& engine, unsigned count, std::uint64_t seed) {
  for (unsigned i = 0; i < count; ++i) {
    threads_.emplace_back([this, &engine, seed, i] {
      std::mt19937_64 random(seed + i);
      while (!ending_.load(std::memory_order_relaxed)) {
        if (!engine.turn(random)) std::this_thread::yield();
      }
    });
  }
}

EngineThreads::~EngineThreads() {
  ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

StagedTensors::StagedTensors(Device& device, std::vector<std::size_t> sizes)
    : device_(device),
      sizes_(std::move(sizes)),
      offsets_(offsets_of(sizes_)),
      sources_(device, offsets_.back() + kTensorAlignment),
      targets_(device, offsets_.back() + kTensorAlignment),
      host_(device, 2 * offsets_.back() + kTensorAlignment),
      before_(device, device.make_stream()),
      after_(device, device.make_stream()) {
  for (std::size_t i = 0; i < count(); ++i) fill_pattern(upload(i), seed(i));
}

DeviceAddress StagedTensors::source(std::size_t index) const {
  return sources_.address() + offsets_[index];
}

DeviceAddress StagedTensors::target(std::size_t index) const {
  return index % 2 == 0 ? source(index) : targets_.address() + offsets_[index];
}

std::span<std::byte> StagedTensors::upload(std::size_t index) {
  return host_.bytes().subspan(offsets_[index], sizes_[index]);
}

std::span<const std::byte> StagedTensors::result(std::size_t index) {
  return host_.bytes().subspan(offsets_.back() + offsets_[index], sizes_[index]);
}

void StagedTensors::compute(std::size_t index) {
  const auto bytes = upload(index);
  device_.copy_to_device(before(), source(index), bytes.data(), bytes.size());
}

Transfer StagedTensors::send(std::size_t index, Staging& staging, StagedEngine& engine) {
  const Transfer transfer = staging.plan({row(index)});
  engine.add(transfer, seed(index));
  staging.submit(transfer, before());
  staging.wait(after(), transfer);
  const std::size_t offset = offsets_.back() + offsets_[index];
  device_.copy_to_host(after(), host_.bytes().data() + offset, target(index), size(index));
  return transfer;
}

void StagedTensors::synchronize() {
  device_.synchronize(before());
  device_.synchronize(after());
}

RoundTrips run_round_trips(Device& device, const StagingOptions& options,
                           const std::vector<std::size_t>& sizes, unsigned num_threads) {
  StagedTensors tensors(device, sizes);
  Staging staging(device, options);
  StagedEngine engine(staging.ring());
  const EngineThreads threads(engine, num_threads);
  for (std::size_t i = 0; i < tensors.count(); ++i) {
    tensors.compute(i);
    tensors.send(i, staging, engine);
  }
  tensors.synchronize();
  RoundTrips found{.wrong_words_at_host = engine.num_wrong_words()};
  for (std::size_t i = 0; i < tensors.count(); ++i) {
    found.wrong_words_at_device +=
        wrong_words(tensors.result(i), result_seed(StagedTensors::seed(i)));
  }
  return found;
}

}  // namespace slipstream::test
