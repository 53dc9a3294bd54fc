#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace slipstream {

/// An address as the device sees it, of its own memory or of registered host memory.
using DeviceAddress = std::uint64_t;

/// Handles are the driver's numbers, so a framework's stream can be used directly.
enum class StreamHandle : std::uintptr_t {};
enum class EventHandle : std::uintptr_t {};

/// The stream that every device has, which PyTorch uses unless told otherwise.
constexpr StreamHandle kDefaultStream{0};

/// A device with its own memory that executes the commands enqueued in streams: each stream in
/// order, several streams side by side.
///
/// Any thread may call it except the engine's (see gate/engine_thread.h). Calls that take a stream
/// enqueue a command and return; every call throws Error if it fails. A failure while the device
/// executes a command is reported by a later call.
class Device {
 public:
  virtual ~Device() = default;

  /// "NVIDIA H100 80GB HBM3 (CUDA device 0)", for messages.
  [[nodiscard]] virtual std::string describe() const = 0;

  virtual DeviceAddress allocate(std::size_t num_bytes) = 0;
  /// May block until no stream waits for a word.
  virtual void free(DeviceAddress memory) = 0;

  /// Pins host memory, so that the device can copy to and from it and sees its words. Returns its
  /// address on the device.
  virtual DeviceAddress register_host(std::span<std::byte> memory) = 0;
  /// May block until no stream waits for a word.
  virtual void unregister_host(std::byte* memory) = 0;

  virtual StreamHandle make_stream() = 0;
  virtual void destroy(StreamHandle stream) = 0;
  /// The new event counts as reached until it is recorded.
  virtual EventHandle make_event() = 0;
  virtual void destroy(EventHandle event) = 0;

  /// The host memory of a copy must be registered until the copy is done.
  virtual void copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                            std::size_t num_bytes) = 0;
  virtual void copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                              std::size_t num_bytes) = 0;
  /// Writes a word of registered host memory. A reader that sees the value sees everything that the
  /// stream did before.
  virtual void write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) = 0;
  /// Holds the stream until the word has `value` or a later one, compared as in reached().
  ///
  /// The work that ends the wait must be enqueued before it, in any stream, or be done by the CPU,
  /// because streams may share a hardware queue.
  virtual void wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) = 0;

  /// The event is reached when the stream has done everything that was enqueued so far.
  virtual void record(StreamHandle stream, EventHandle event) = 0;
  /// Holds the stream until the event, as last recorded, is reached.
  virtual void wait_event(StreamHandle stream, EventHandle event) = 0;
  /// Whether the event, as last recorded, is reached. Never blocks.
  [[nodiscard]] virtual bool is_done(EventHandle event) = 0;
  /// Blocks until the stream has done everything that was enqueued.
  virtual void synchronize(StreamHandle stream) = 0;
};

}  // namespace slipstream
