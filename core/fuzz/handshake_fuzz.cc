// The messages of the handshake, from a stranger and from somebody who has the job key and breaks
// the protocol.

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/hmac.h"
#include "fuzz/input.h"
#include "fuzz/wire.h"
#include "transport/handshake.h"

namespace {

using slipstream::Digest;
using slipstream::Handshake;
using slipstream::Hello;
using slipstream::Purpose;
using slipstream::fuzz::expect;
using slipstream::fuzz::identity_of;
using slipstream::fuzz::Input;
using slipstream::fuzz::Wire;
using Progress = Handshake::Progress;

constexpr std::size_t kChallengeBytes = 80, kChallengedBytes = 48;

Progress advance(Handshake& handshake, Wire& wire) {
  const Progress progress = handshake.advance(wire.near.get());
  if (progress == Progress::kFailed) expect(!handshake.reason().empty());
  return progress;
}

/// Writes pieces of the input, and returns the state of the handshake at its end.
Progress feed(Handshake& handshake, Wire& wire, Input& input) {
  Progress progress = advance(handshake, wire);
  while (progress == Progress::kPending && !input.empty()) {
    wire.write(input.bytes(1 + input.number<std::uint8_t>()));
    progress = advance(handshake, wire);
  }
  return progress;
}

/// Fields that are near the ones that an acceptor takes.
Hello choose_hello(Input& input) {
  Hello hello{.magic = slipstream::kHandshakeMagic, .version = slipstream::kProtocolVersion};
  hello.purpose = static_cast<Purpose>(input.below(5));
  hello.reserved = static_cast<std::uint8_t>(input.below(2));
  hello.epoch = 2 + input.below(3);
  hello.from = input.below(10);
  hello.to = input.below(4);
  hello.world_size = 7 + input.below(3);
  hello.stream = static_cast<std::uint16_t>(input.below(4));
  hello.num_streams = static_cast<std::uint16_t>(input.below(5));
  hello.renews = input.number<std::uint64_t>();
  return hello;
}

/// Sends any Hello with its right proof. Only one that fits the acceptor may be welcome.
void claim(Handshake& acceptor, Wire& wire, Input& input) {
  const Hello hello = choose_hello(input);
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  wire.write(bytes);
  advance(acceptor, wire);
  const std::vector<std::byte> challenge = wire.read();
  expect(challenge.size() == kChallengeBytes);
  const std::string_view label = "slipstream connect";
  const Digest proof = slipstream::hmac_sha256(
      identity_of(2).key,
      {std::as_bytes(std::span(label)), bytes, std::span(challenge).first(kChallengedBytes)});
  wire.write(proof);
  const bool fits = hello.purpose == Purpose::kTcp && hello.epoch == 3 && hello.to == 2 &&
                    hello.from != 2 && hello.from < 8 && hello.world_size == 8 &&
                    hello.stream < hello.num_streams;
  expect((advance(acceptor, wire) == Progress::kDone) == fits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Wire wire;
  const std::uint32_t role = input.below(3);
  if (role == 0) {
    Handshake connector = Handshake::connect(identity_of(5), {.peer = 2, .num_streams = 4});
    expect(feed(connector, wire, input) != Progress::kDone);
  } else {
    Handshake acceptor = Handshake::accept(identity_of(2), Purpose::kTcp);
    if (role == 1) {
      expect(feed(acceptor, wire, input) != Progress::kDone);
    } else {
      claim(acceptor, wire, input);
    }
  }
  return 0;
}
