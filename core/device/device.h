#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace slipstream {

/// An address that the device uses, of device memory or of registered host memory.
using DeviceAddress = std::uint64_t;

/// The driver's own handles, so the stream of a framework can be used directly.
enum class StreamHandle : std::uintptr_t {};
enum class EventHandle : std::uintptr_t {};

/// The stream that exists on every device and that PyTorch uses by default.
constexpr StreamHandle kDefaultStream{0};

/// A device with its own memory. It executes the commands of a stream in order, and those of
/// several streams concurrently.
///
/// Any thread may call a device, except the threads of the engine (see gate/engine_thread.h). Calls
/// that take a stream add a command to it and return. Every call throws Error if it fails. If the
/// device fails later, while it executes, a later call throws.
class Device {
 public:
  virtual ~Device() = default;

  /// For messages: "NVIDIA H100 80GB HBM3 (CUDA device 0)".
  [[nodiscard]] virtual std::string describe() const = 0;

  virtual DeviceAddress allocate(std::size_t num_bytes) = 0;
  /// May block until no stream waits for a word.
  virtual void free(DeviceAddress memory) = 0;

  /// Pins host memory. The device can then copy to and from it and access the words in it. Returns
  /// the address that the device uses for it.
  virtual DeviceAddress register_host(std::span<std::byte> memory) = 0;
  /// May block until no stream waits for a word.
  virtual void unregister_host(std::byte* memory) = 0;

  virtual StreamHandle make_stream() = 0;
  virtual void destroy(StreamHandle stream) = 0;
  /// An event that was never recorded counts as reached.
  virtual EventHandle make_event() = 0;
  virtual void destroy(EventHandle event) = 0;

  /// The host memory of a copy must be registered until the copy is done.
  virtual void copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                            std::size_t num_bytes) = 0;
  virtual void copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                              std::size_t num_bytes) = 0;
  /// Writes a word of registered host memory. A thread that sees the value also sees the results of
  /// all earlier commands of the stream.
  virtual void write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) = 0;
  /// Makes the stream wait until reached(word, value).
  ///
  /// The word must be written by the CPU, or by a command that was enqueued before the wait, in any
  /// stream. Streams may share a hardware queue, in which a later command would never run.
  virtual void wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) = 0;

  /// The event is reached when the stream has executed all earlier commands.
  virtual void record(StreamHandle stream, EventHandle event) = 0;
  /// Makes the stream wait for the event. The latest record() before this call counts.
  virtual void wait_event(StreamHandle stream, EventHandle event) = 0;
  /// Whether the event is reached. The latest record() counts. Never blocks.
  [[nodiscard]] virtual bool is_done(EventHandle event) = 0;
  /// Blocks until the stream has executed all its commands.
  virtual void synchronize(StreamHandle stream) = 0;
};

}  // namespace slipstream
