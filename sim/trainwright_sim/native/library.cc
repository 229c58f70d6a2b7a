// C functions for trainwright_sim/library.py. Only one thread at a time may use a handle.
#include <cstring>
#include <exception>

#include "harness.h"

using trainwright::Harness;
using trainwright::MemorySettings;

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

EXPORT uint32_t trainwright_abi() { return 1; }

EXPORT Harness *trainwright_open(uint8_t *bytes, uint64_t size) {
    try {
        return new Harness(bytes, size);
    } catch (const std::exception &) {
        return nullptr;
    }
}

EXPORT void trainwright_close(Harness *harness) { delete harness; }

EXPORT void trainwright_reset(Harness *harness) { harness->reset(); }

EXPORT void trainwright_configure(Harness *harness, const MemorySettings *settings) {
    harness->memory.configure(*settings);
}

EXPORT int trainwright_write_register(Harness *harness, uint32_t address, uint32_t value) {
    return harness->write_register(address, value);
}

EXPORT int trainwright_read_register(Harness *harness, uint32_t address, uint32_t *value) {
    return harness->read_register(address, *value);
}

EXPORT int trainwright_run(Harness *harness, uint64_t cycles, uint64_t idle_cycles) {
    return int(harness->run(cycles, idle_cycles));
}

EXPORT const char *trainwright_fault(const Harness *harness) { return harness->fault.c_str(); }

EXPORT uint64_t trainwright_cycles(const Harness *harness) { return harness->cycles; }

EXPORT uint64_t trainwright_beats_read(const Harness *harness) { return harness->memory.beats_read(); }

EXPORT uint64_t trainwright_beats_written(const Harness *harness) {
    return harness->memory.beats_written();
}

EXPORT void trainwright_trace(Harness *harness, int enable) { harness->trace(enable != 0); }

EXPORT uint64_t trainwright_commands_length(const Harness *harness) {
    return harness->commands.size();
}

EXPORT void trainwright_commands_copy(const Harness *harness, uint64_t *records) {
    static_assert(sizeof(trainwright::CommandTrace) == 6 * sizeof(uint64_t), "copied as integers");
    std::memcpy(records, harness->commands.data(),
                harness->commands.size() * sizeof(trainwright::CommandTrace));
}

EXPORT uint64_t trainwright_trace_length(const Harness *harness, int engine) {
    return harness->traces[engine].addresses.size();
}

EXPORT void trainwright_trace_copy(const Harness *harness, int engine, uint32_t *addresses,
                               uint8_t *rows) {
    const trainwright::TraceBuffer &buffer = harness->traces[engine];
    std::memcpy(addresses, buffer.addresses.data(), buffer.addresses.size() * sizeof(uint32_t));
    std::memcpy(rows, buffer.rows.data(), buffer.rows.size());
}
