// The opening of a connection and its encrypted bytes, while somebody between the ends changes,
// drops and inserts bytes.

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/wire.h"
#include "transport/tcp/opening.h"

namespace {

using slipstream::Connection;
using slipstream::Handshake;
using slipstream::Opening;
using slipstream::Purpose;
using slipstream::TlsEnd;
using slipstream::fuzz::expect;
using slipstream::fuzz::identity_of;
using slipstream::fuzz::Input;
using slipstream::fuzz::Meddler;
using slipstream::fuzz::Wire;
using Progress = Handshake::Progress;

struct End {
  explicit End(Opening which) : opening(std::move(which)) {}

  void advance() {
    if (progress != Progress::kPending) return;
    progress = opening.advance(wire.near.get());
    if (progress != Progress::kFailed) return;
    expect(!opening.reason().empty());
    wire.near.reset();
  }

  Opening opening;
  Wire wire;
  Progress progress = Progress::kPending;
};

/// Sends known bytes from one end to the other. What arrives must be their beginning.
void exchange(End& from, End& to, Meddler& meddler, bool& changed) {
  const Connection sender = from.opening.take_connection(std::move(from.wire.near));
  const Connection receiver = to.opening.take_connection(std::move(to.wire.near));
  std::vector<char> sent(3000), received(4000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 % 251);
  const std::array<iovec, 1> out{{{sent.data(), sent.size()}}};
  expect(sender.channel->send(out) == sent.size());
  std::size_t count = 0;
  while (meddler.pass(from.wire, to.wire, changed)) {
    const std::array<iovec, 1> in{{{received.data() + count, received.size() - count}}};
    count += receiver.channel->receive(in).bytes;
  }
  expect(count <= sent.size() && std::equal(sent.begin(), sent.begin() + count, received.begin()));
  expect(changed || count == sent.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const bool encrypts = input.below(4) != 0;
  const Purpose purpose = encrypts ? Purpose::kTls : Purpose::kTcp;
  End connector(Opening(TlsEnd::kServer,
                        Handshake::connect(identity_of(5), {.purpose = purpose, .peer = 2})));
  End acceptor(Opening(TlsEnd::kClient, Handshake::accept(identity_of(2), purpose)));
  Meddler meddler(input);
  bool sent_changed = false, answer_changed = false, moved = true;
  while (moved) {
    connector.advance();
    moved = meddler.pass(connector.wire, acceptor.wire, sent_changed);
    acceptor.advance();
    moved = meddler.pass(acceptor.wire, connector.wire, answer_changed) || moved;
  }
  const bool both = connector.progress == Progress::kDone && acceptor.progress == Progress::kDone;
  expect(both || sent_changed || answer_changed);
  expect(connector.progress != Progress::kDone || acceptor.progress == Progress::kDone);
  if (both && encrypts) exchange(connector, acceptor, meddler, sent_changed);
  return 0;
}
