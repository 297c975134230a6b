# Turns a CUDA source, or what calls its functions, into C++ for device.h: launches, shared memory, bounds of launches, accesses
# through pointers of other types. Tensors on the CPU take the way of a GPU's.
# cmake -D FROM=norm_cuda.cu -D TO=norm_cuda.cu.cc -P rewrite.cmake
file(READ ${FROM} text)
string(REGEX REPLACE "#include <(c10/cuda/|cuda_|nv/)[a-zA-Z0-9_.]*>" "#include \"cuda_on_cpu/device.h\"" text "${text}")
string(REGEX REPLACE "([a-z_]+(<[A-Za-z0-9_, <>]*>)?)[ \n]*<<<([^<>;]*)>>>\\(" "cuda_on_cpu::launch(\\3).run(\\1, "
  text "${text}")
string(REGEX REPLACE "extern __shared__ ([a-z0-9]+) ([a-z_]+)\\[\\];"
  "auto* \\2 = static_cast<\\1*>(cuda_on_cpu::dynamic_shared());" text "${text}")
string(REGEX REPLACE "__shared__ ([A-Za-z0-9_]+(<[A-Za-z0-9_]+>)?) ([a-z_]+)([^;]*);"
  "static cuda_on_cpu::Shared<\\1\\4> \\3_memory; auto& \\3 = \\3_memory.here();" text "${text}")
string(REGEX REPLACE "__launch_bounds__\\(([^()]*)\\)([ \n]+[a-z_]+\\([^()]*\\) {)" "\\2 cuda_on_cpu::check_bounds(\\1);"
  text "${text}")
string(REGEX REPLACE "\\*reinterpret_cast<([^*<>]*(<[^<>]*>)?)\\*>\\(" "cuda_on_cpu::aligned<\\1>(" text "${text}")
string(REPLACE ".is_cuda()" ".is_cpu()" text "${text}")
# The halves for a CPU are not called there: one kind of processor is enough.
string(REGEX REPLACE "\\[\\[gnu::target_clones[^]]*\\]\\]" "" text "${text}")
file(WRITE ${TO} "#line 1 \"${FROM}\"\n${text}")
