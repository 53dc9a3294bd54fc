// What happens when peers, streams or strangers misbehave.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "world.h"

namespace slipstream::nccl::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

class Trouble : public testing::TestWithParam<int> {
 protected:
  /// The streams are slow, so that a message of some megabytes is under way for a while.
  Trouble() : net(11, GetParam()) {
    ::setenv("SLIPSTREAM_PACING_MBIT", "100", 1);
    EXPECT_EQ(net.init(), Result::kSuccess) << logged();
  }

  /// Tests requests a few times, without finishing them.
  void begin(const std::vector<void*>& requests) {
    for (int i = 0; i < 5; ++i) {
      for (void* const request : requests) EXPECT_FALSE(test_once(net, request).done);
    }
  }

  /// Tests a request of 64 MiB for longer than the 1.3 s that it would take.
  void expect_no_end(void* request) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (std::chrono::steady_clock::now() < end) {
      ASSERT_FALSE(test_once(net, request).done);
    }
  }

  void* listen(HandleBytes& handle) {
    void* comm = nullptr;
    EXPECT_EQ(net.listen(handle, &comm), Result::kSuccess);
    return comm;
  }
  void* accept(void* listening) {
    void* comm = nullptr;
    until([&] {
      EXPECT_EQ(net.accept(listening, &comm, nullptr), Result::kSuccess) << logged();
      return comm != nullptr;
    });
    return comm;
  }
  struct Sending {
    void* comm = nullptr;
    void* request = nullptr;
  };
  /// Connects to a receiver and begins to send 64 MiB.
  Sending send_to(const Process& receiver) {
    HandleBytes handle = receiver.read_handle();
    Sending sending;
    until([&] {
      EXPECT_EQ(net.connect(handle, &sending.comm), Result::kSuccess);
      return sending.comm != nullptr;
    });
    EXPECT_EQ(receiver.read_line(), "posted");
    const auto data = noise(64 * kMiB);
    net.send(sending.comm, const_cast<std::byte*>(data.data()), data.size(), &sending.request);
    begin({sending.request});
    return sending;
  }
  static testing::AssertionResult has_logged(const std::string& text) {
    const std::string all = logged();
    if (all.find(text) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << text << "' is not in:\n" << all;
  }

  Net net;
};

INSTANTIATE_TEST_SUITE_P(Threads, Trouble, testing::Values(0, 2),
                         testing::PrintToStringParamName());

/// Resets a connection under the plugin's hands, as a network may. The thread sanitizer takes
/// connect() for the creation of the descriptor, so the system call is made directly.
void reset(int fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  EXPECT_EQ(::syscall(SYS_connect, fd, &none, sizeof none), 0);
}

/// A connection to a port of this host.
int dial(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST_P(Trouble, OtherStreamsTakeOverFromOneThatDies) {
  const Pair pair(net);
  const std::vector<int> sockets = sockets_to(pair.port());
  ASSERT_EQ(sockets.size(), 5U) << "one control stream and four others";
  std::vector<std::byte> received(8 * kMiB);
  for (std::size_t dies = 0; dies + 1 < sockets.size(); ++dies) {
    std::ranges::fill(received, std::byte{});
    void* const receiving = pair.receive(received);
    void* const sending = pair.send(noise(received.size(), dies));
    begin({sending, receiving});
    dies % 2 == 0 ? reset(sockets[dies]) : void(::shutdown(sockets[dies], SHUT_RDWR));
    finish(net, {sending, receiving});
    EXPECT_TRUE(same(received, noise(received.size(), dies))) << dies;
  }
  EXPECT_TRUE(has_logged("goes on with 1 streams"));
}

TEST_P(Trouble, AReceiveIsPostedAgainIfItsStreamDies) {
  const Pair pair(net);
  const std::vector<int> sockets = sockets_to(pair.port());
  std::vector<std::byte> received(1000);
  for (std::size_t dies = 0; dies + 1 < sockets.size(); ++dies) {
    void* const receiving = pair.receive(received);
    reset(sockets[dies]);  // the sender has not read the post yet
    void* const sending = pair.send(noise(received.size(), dies));
    finish(net, {sending, receiving});
    EXPECT_TRUE(same(received, noise(received.size(), dies))) << dies;
  }
}

TEST_P(Trouble, ThePeerHearsOfACommThatIsClosedWithRequestsInFlight) {
  std::vector<std::byte> received(8 * kMiB);
  for (const bool closes_receiver : {true, false}) {
    Pair pair(net);
    void* const receiving = pair.receive(received);
    void* const sending = pair.send(noise(received.size()));
    begin({sending, receiving});
    closes_receiver ? pair.close_receiver() : pair.close_sender();
    EXPECT_EQ(wait_for_failure(net, closes_receiver ? sending : receiving), Result::kRemoteError);
  }
  EXPECT_TRUE(has_logged("no other stream is left"));
}

TEST_P(Trouble, AReceiverHearsOfAKilledSender) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  const Process sender("send", &handle);
  void* const comm = accept(listening);
  std::vector<std::byte> received(64 * kMiB);
  void* request = nullptr;
  net.receive(comm, received.data(), 1, &request);
  finish(net, {request});
  net.receive(comm, received.data(), received.size(), &request);
  begin({request});
  sender.kill();
  EXPECT_EQ(wait_for_failure(net, request), Result::kRemoteError);
  EXPECT_TRUE(has_logged("process " + std::to_string(sender.id())));
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, ASenderHearsOfAKilledReceiver) {
  const Process receiver("receive", nullptr, {"OMPI_COMM_WORLD_RANK=3"});
  const auto [comm, request] = send_to(receiver);
  receiver.kill();
  EXPECT_EQ(wait_for_failure(net, request), Result::kRemoteError);
  EXPECT_TRUE(has_logged("rank 3 on "));
  EXPECT_TRUE(has_logged("process " + std::to_string(receiver.id())));
  net.close_send(comm);
}

TEST_P(Trouble, AStoppedReceiverLosesNothing) {
  Process receiver("receive", nullptr);
  const auto [comm, request] = send_to(receiver);
  receiver.stop();
  expect_no_end(request);
  receiver.go_on();
  finish(net, {request});
  EXPECT_EQ(receiver.wait(), 0);
  net.close_send(comm);
}

TEST_P(Trouble, AStoppedSenderLosesNothing) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  Process sender("send", &handle);
  void* const comm = accept(listening);
  std::vector<std::byte> first(1), received(64 * kMiB);
  void* request = nullptr;
  net.receive(comm, first.data(), first.size(), &request);
  finish(net, {request});
  net.receive(comm, received.data(), received.size(), &request);
  begin({request});
  sender.stop();
  expect_no_end(request);
  sender.go_on();
  finish(net, {request});
  EXPECT_TRUE(same(received, noise(received.size())));
  sender.wait();
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, ConnectionsThatSayNothingDoNoHarm) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  std::vector<int> silent;
  void* comm = nullptr;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(dial(port_of(handle)));
    EXPECT_EQ(net.accept(listening, &comm, nullptr), Result::kSuccess) << logged();
  }
  Process sender("send", &handle);
  comm = accept(listening);
  for (const int each : silent) ::close(each);
  sender.kill();
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, AStrangerIsRefusedAndDoesNoHarm) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  Process stranger("send", &handle, {"SLIPSTREAM_JOB_KEY=the key of another job"});
  void* comm = nullptr;
  const int code =
      stranger.wait([&] { EXPECT_EQ(net.accept(listening, &comm, nullptr), Result::kSuccess); });
  EXPECT_EQ(code, 1) << "its connect() has failed";
  EXPECT_EQ(comm, nullptr);
  EXPECT_TRUE(has_logged("refused a connection"));
  Process sender("send", &handle);
  comm = accept(listening);
  sender.kill();
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, GarbageIsRefusedAndDoesNoHarm) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  const int stranger = dial(port_of(handle));
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(::send(stranger, garbage.data(), garbage.size(), 0), 0);
  void* comm = nullptr;
  until([&] {
    EXPECT_EQ(net.accept(listening, &comm, nullptr), Result::kSuccess);
    return static_cast<bool>(has_logged("does not speak Slipstream's protocol"));
  });
  ::close(stranger);
  void* sender = nullptr;
  until([&] {
    if (sender == nullptr) {
      EXPECT_EQ(net.connect(handle, &sender), Result::kSuccess);
    }
    if (comm == nullptr) {
      EXPECT_EQ(net.accept(listening, &comm, nullptr), Result::kSuccess);
    }
    return sender != nullptr && comm != nullptr;
  });
  net.close_send(sender);
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, AHandleWithAnAttemptOfAnotherProcessBeginsAnAttempt) {
  constexpr std::size_t kAttempt = 96;  // behind the magic, two numbers and four endpoints
  HandleBytes handle{};
  void* const listening = listen(handle);
  for (std::size_t i = kAttempt; i < kAttempt + 8; ++i) handle[i] = std::byte{0x41};
  void* sender = nullptr;
  void* receiver = nullptr;
  until([&] {
    if (sender == nullptr) {
      EXPECT_EQ(net.connect(handle, &sender), Result::kSuccess) << logged();
    }
    if (receiver == nullptr) net.accept(listening, &receiver, nullptr);
    return sender != nullptr && receiver != nullptr;
  });
  net.close_send(sender);
  net.close_receive(receiver);
  net.close_listen(listening);
}

TEST_P(Trouble, AHandleThatIsNotOursIsRefused) {
  HandleBytes handle{};
  void* comm = nullptr;
  EXPECT_EQ(net.connect(handle, &comm), Result::kInvalidUsage);
  EXPECT_TRUE(has_logged("a handle of another net plugin"));
}

TEST_P(Trouble, AListenerTakesOneConnection) {
  HandleBytes handle{};
  void* const listening = listen(handle);
  Process sender("send", &handle);
  void* const comm = accept(listening);
  void* second = nullptr;
  EXPECT_EQ(net.accept(listening, &second, nullptr), Result::kInvalidUsage);
  sender.kill();
  net.close_receive(comm);
  net.close_listen(listening);
}

TEST_P(Trouble, AMessageThatIsTooLargeFails) {
  const Pair pair(net);
  std::vector<std::byte> room(10);
  void* const receiving = pair.receive(room);
  void* const sending = pair.send(noise(11));
  EXPECT_EQ(wait_for_failure(net, sending, {receiving}), Result::kInvalidUsage);
  EXPECT_TRUE(has_logged("message 0 has 11 bytes, but the receiver has room for 10"));
  EXPECT_EQ(wait_for_failure(net, receiving), Result::kRemoteError);
}

TEST_P(Trouble, ManyConnectionsRaiseTheLimitOfFiles) {
  Process process("open many", nullptr, {"SLIPSTREAM_CONNECT_TIMEOUT=5"});
  EXPECT_EQ(process.wait(), 0) << process.read_line();
}

TEST_P(Trouble, ThreadsMayUseThePluginWhileTheProcessExits) {
  Process process("exit early", nullptr);
  EXPECT_EQ(process.wait(), 0);
}

/// Each communicator of NCCL has a thread that connects.
TEST_P(Trouble, SeveralThreadsMayConnectAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] { const Pair pair(net); });
  }
  for (std::thread& each : threads) each.join();
}

TEST_P(Trouble, ARunWithoutAKeySaysWhatToDo) {
  Process process("receive", nullptr, {"SLIPSTREAM_JOB_KEY="});
  EXPECT_NE(process.read_line().find("there is no job key"), std::string::npos);
  EXPECT_EQ(process.wait(), 3);
}

TEST_P(Trouble, AnInterfaceThatNcclNamesIsCalledSo) {
  Process process("receive", nullptr, {"SLIPSTREAM_IFACE=", "NCCL_SOCKET_IFNAME=none"});
  EXPECT_NE(process.read_line().find("NCCL_SOCKET_IFNAME"), std::string::npos);
  EXPECT_EQ(process.wait(), 3);
}

TEST_P(Trouble, AWrongValueIsNamed) {
  Process process("receive", nullptr, {"SLIPSTREAM_STREAMS=many"});
  EXPECT_NE(process.read_line().find("SLIPSTREAM_STREAMS is 'many'"), std::string::npos);
  EXPECT_EQ(process.wait(), 3);
}

}  // namespace
}  // namespace slipstream::nccl::test
