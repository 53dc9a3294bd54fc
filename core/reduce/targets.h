#pragma once

// To be included before Highway: which of its targets are compiled.
// A CPU with SSSE3 and no more is too rare to be worth compiling for; it takes the baseline.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
// The baseline must have vectors, the kernels work on halves and pairs of lanes. Highway avoids
// EMU128 with gcc before 12.3 for a bug in gcc's vectoriser, which is switched off for this layer.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
