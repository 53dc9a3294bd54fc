#pragma once

namespace slipstream {

/// Keeps `fd` in the list of descriptors that a forked child closes at once, so that a peer sees a
/// dead rank as dead while its data-loader workers live on.
void close_on_fork(int fd);

/// Takes `fd` off that list; call before closing it.
void forget_on_fork(int fd) noexcept;

/// True in a child forked while an engine was open: no engine may be used there.
bool is_forked_child() noexcept;

}  // namespace slipstream
