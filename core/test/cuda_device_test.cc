#include "device/cuda/cuda_device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "slipstream/gpu.h"
#include "test/device_family.h"

// The contract over the driver of this machine, if there is one, and over a stand-in for it.
namespace slipstream::test {
namespace {

DeviceFamily cuda(std::string name, const std::string& library) {
  return {std::move(name), [library] { return std::make_unique<CudaDevice>(CudaDriver(library)); }};
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract,
                         every_case({cuda("Driver", CudaDriver::kLibrary),
                                     cuda("StandIn", CUDA_STAND_IN)}),
                         case_name);

/// The error that a call throws.
template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::kInternal, "no error"};
}

TEST(CudaDriver, SaysThatThereIsNone) {
  const Error error = error_of([] { CudaDriver("libcuda-of-nobody.so.1"); });
  EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  const std::string text = error.what();
  EXPECT_EQ(text.find("the CUDA driver cannot be loaded: dlopen failed: libcuda-of-nobody.so.1: "),
            0U)
      << text;
  EXPECT_NE(text.find("install NVIDIA's driver"), std::string::npos) << text;
}

TEST(CudaDriver, NamesAFunctionThatIsMissing) {
  const Error error = error_of([] { CudaDriver("libc.so.6"); });
  EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(std::string(error.what()),
            "the CUDA driver is too old: libc.so.6 has no cuInit; install a driver for CUDA 11.7 "
            "or later (515 or later)");
}

TEST(CudaDriver, NamesFunctionResultAndRemedy) {
  const CudaDriver driver(CUDA_STAND_IN);
  const auto text = [&](CudaResult result) {
    return std::string(error_of([&] { driver.check(result, "cuMemAlloc_v2"); }).what());
  };
  EXPECT_EQ(text(kCudaInvalidValue),
            "cuMemAlloc_v2 failed: CUDA_ERROR_INVALID_VALUE (1, the stand-in refused); please "
            "report it");
  EXPECT_NE(text(kCudaOutOfMemory).find("free memory of the GPU"), std::string::npos);
  EXPECT_NE(text(904).find("captured into a CUDA graph"), std::string::npos);
  EXPECT_EQ(text(kCudaSuccess), "no error");
}

TEST(Gpus, ListsWhatTheDriverHas) {
  const GpuList list = list_gpus(CUDA_STAND_IN);
  EXPECT_EQ(list.cuda_version, 12040);
  ASSERT_EQ(list.gpus.size(), 1U);
  EXPECT_EQ(list.gpus[0].name, "a stand-in");
  EXPECT_EQ(list.gpus[0].memory_bytes, 2UL << 30);
}

TEST(Gpus, TriesAGpu) {
  EXPECT_NO_THROW(try_gpu(0, CUDA_STAND_IN));
  EXPECT_EQ(error_of([] { try_gpu(1, CUDA_STAND_IN); }).kind(), ErrorKind::kUsage);
}

TEST(CudaDevice, NamesTheGpu) {
  const CudaDevice device{CudaDriver(CUDA_STAND_IN)};
  EXPECT_EQ(device.describe(), "a stand-in (CUDA device 0)");
}

TEST(CudaDevice, RefusesAGpuThatIsNotThere) {
  const Error error = error_of([] { CudaDevice(CudaDriver(CUDA_STAND_IN), 3); });
  EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  EXPECT_EQ(std::string(error.what()).find("cuDeviceGet failed: "), 0U) << error.what();
}

TEST(CudaDevice, GivesTheThreadItsContextBack) {
  const CudaDriver driver(CUDA_STAND_IN);
  CudaDevice device(driver);
  CudaHandle own = &device;
  ASSERT_EQ(driver.api().cuCtxPushCurrent_v2(own), kCudaSuccess);
  device.destroy(device.make_event());
  CudaHandle current = nullptr;
  ASSERT_EQ(driver.api().cuCtxPopCurrent_v2(&current), kCudaSuccess);
  EXPECT_EQ(current, own);
}

TEST(CudaDevice, RefusesAForkedChild) {
  CudaDevice device{CudaDriver(CUDA_STAND_IN)};
  const pid_t child = ::fork();
  if (child == 0) {
    const Error error = error_of([&] { device.make_event(); });
    ::_exit(error.kind() == ErrorKind::kUsage ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace slipstream::test
