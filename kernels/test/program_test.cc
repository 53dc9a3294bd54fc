#include "program.h"

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "reference.h"
#include "steps.h"

namespace slipstream::kernels {
namespace {

Step note(std::vector<int>& order, int number) {
  return {"note", [&order, number](const Memory&, Workers&) { order.push_back(number); }};
}

TEST(Program, RunsItsStepsInOrder) {
  std::vector<int> order;
  Program program(64);
  for (int number = 0; number < 5; ++number) program.add(note(order, number));
  Workers workers(2);
  program.run({}, workers);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(program.profile({}, workers).size(), 5U);
  EXPECT_EQ(order.size(), 10U);
}

TEST(Program, TakesTinyNumbersForZerosAndLeavesTheCallersAlone) {
#if defined(__x86_64__)
  volatile float tiny = 2e-38F;
  std::vector<float> products(64, -1.0F);
  Program program(64);
  program.add({"multiply", [&](const Memory&, Workers& workers) {
                 workers.share(products.size(), [&](std::size_t part) {
                   products[part] = tiny * 0.1F;
                   std::this_thread::sleep_for(std::chrono::microseconds(100));
                 });
               }});
  Workers workers(3);
  program.run({}, workers);
  EXPECT_EQ(products, std::vector<float>(64, 0.0F));
  products.assign(64, -1.0F);
  EXPECT_EQ(program.profile({}, workers).size(), 1U);
  EXPECT_EQ(products, std::vector<float>(64, 0.0F));
  EXPECT_GT(tiny * 0.1F, 0.0F);
#endif
}

TEST(Program, HasMemoryOfItsOwnOnEachThread) {
  Program program(1 << 20);
  const Tensor inside{Number::kFloat32, 0, 0, 1, 1, 1, 1, {}};
  Tensor outside = inside;
  outside.buffer = 1;
  Tensor answer = inside;
  answer.buffer = 2;
  const Copy all{{1 << 18}, {4}, {4}};
  program.add(copy(outside, inside, all));
  program.add(copy(inside, answer, all));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      Workers workers(1 + thread % 2);
      std::vector<float> given(1 << 18, static_cast<float>(thread)), got(1 << 18);
      for (int round = 0; round < 5; ++round) {
        program.run({reinterpret_cast<std::uint8_t*>(given.data()),
                     reinterpret_cast<std::uint8_t*>(got.data())},
                    workers);
        wrong[thread] += given != got;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// Depthwise convolutions read pixels that they do not use, which must be memory of the program,
/// too. The last value of a program ends where the memory does, except for the slack;
/// AddressSanitizer finds reads beyond it.
void read_near_the_end(Number number, std::size_t channels, std::size_t columns, std::size_t kernel,
                       std::size_t stride) {
  reference::Numbers numbers;
  const auto pixel = static_cast<std::ptrdiff_t>(channels * size_of(number));
  const std::size_t wide = (columns - 1) * stride + kernel;
  const auto line = pixel * static_cast<std::ptrdiff_t>(wide);
  const std::ptrdiff_t picture = line * static_cast<std::ptrdiff_t>(kernel);
  const auto size =
      static_cast<std::size_t>(picture + 12 * pixel) + 64;  // as native/memory.py has it
  const Tensor input{number, 0, 0, 1, kernel, wide, channels, {picture, line, pixel}};
  const auto step = static_cast<std::ptrdiff_t>(channels * 4);
  const Tensor output{Number::kFloat32, 1, 0, 1, 1, columns, channels, {step, step, step}};
  Program program(size);
  const std::vector<float> weights(kernel * kernel * channels, 1.0F);
  program.add({"fill", [size](const Memory& memory, Workers&) {
                 std::memset(memory.at(Tensor{}), 1, size);
               }});
  program.add(
      depthwise({input, output, std::nullopt, std::nullopt},
                {.rows = kernel, .columns = kernel, .row_stride = stride, .column_stride = stride},
                weights.data(), number == Number::kUInt8, reference::plain(numbers, channels)));
  Aligned<std::uint8_t> result(columns * channels * 4);
  std::thread([&] {  // a new thread, because a thread keeps a block that is large enough
    Workers workers(1);
    program.run({result.data()}, workers);
  })
      .join();
}

TEST(Program, HasMemoryWhereKernelsRead) {
  for (const std::size_t columns : {1, 2, 3, 5, 7, 8, 9}) {
    for (const std::size_t stride : {1, 2}) {
      read_near_the_end(Number::kFloat32, 64, columns, 3, stride);
      read_near_the_end(Number::kBFloat16, 128, columns, 3, stride);
      read_near_the_end(Number::kUInt8, 256, columns, 3, stride);
      read_near_the_end(Number::kUInt8, 256, columns, 5, stride);
      read_near_the_end(Number::kFloat32, 960, columns, 3, stride);
      read_near_the_end(Number::kBFloat16, 2048, columns, 3, stride);
      read_near_the_end(Number::kUInt8, 2048, columns, 3, stride);
      read_near_the_end(Number::kUInt8, 2048, columns, 5, stride);
    }
  }
}

}  // namespace
}  // namespace slipstream::kernels
