#pragma once

// Include this file before Highway; it selects the targets that are compiled. CPUs with SSSE3 but
// not more are too rare to be compiled for, so they use the baseline.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
// The baseline must have vectors, because the kernels work on halves and pairs of lanes. With gcc
// before 12.3, Highway avoids EMU128 because of a bug in gcc's vectoriser, which is switched off
// for this layer.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
