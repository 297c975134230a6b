// Compiled for several kinds of x86-64, of which the one for this CPU is chosen when the program is
// loaded; elsewhere as it is.
#pragma once

#if defined(__x86_64__)
#define NEOX_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define NEOX_CLONES
#endif
