// Block with mutants, with one input port and one output port, neither registered.
#include <cstdint>
#include <cstring>

#include "model.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

struct Mutable {
    VerilatedContext context;
    Vsimulated top{&context, "top"};
};

}  // namespace

// Return mutant `number`, 0 for the original block; it lives as long as the process.
EXPORT void *trainwright_mutable_new(uint32_t number) {
    auto made = new Mutable;
    trainwright::set(made->top.PORT_mutant, number);
    return made;
}

// Return the settled output.
EXPORT void trainwright_mutable_eval(void *made, uint32_t clk, uint32_t rst, const uint8_t *inputs,
                                     uint8_t *outputs) {
    auto &top = static_cast<Mutable *>(made)->top;
#if defined(CLOCKED)
    trainwright::set(top.PORT_clk, clk);
    trainwright::set(top.PORT_rst, rst);
#endif
    trainwright::set_bytes<INPUT_BYTES>(top.PORT_inputs, inputs);
    top.eval();
    trainwright::get_bytes<OUTPUT_BYTES>(top.PORT_outputs, outputs);
}
