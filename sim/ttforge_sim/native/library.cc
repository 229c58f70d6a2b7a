// The functions that ttforge_sim/library.py calls. A handle is used by one thread at a time.
#include <cstring>
#include <exception>

#include "harness.h"

using ttforge::Harness;
using ttforge::MemorySettings;

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

EXPORT uint32_t ttforge_abi() { return 1; }

EXPORT Harness *ttforge_open(uint8_t *bytes, uint64_t size) {
    try {
        return new Harness(bytes, size);
    } catch (const std::exception &) {
        return nullptr;
    }
}

EXPORT void ttforge_close(Harness *harness) { delete harness; }

EXPORT void ttforge_reset(Harness *harness) { harness->reset(); }

EXPORT void ttforge_configure(Harness *harness, const MemorySettings *settings) {
    harness->memory.configure(*settings);
}

EXPORT int ttforge_write_register(Harness *harness, uint32_t address, uint32_t value) {
    return harness->write_register(address, value);
}

EXPORT int ttforge_read_register(Harness *harness, uint32_t address, uint32_t *value) {
    return harness->read_register(address, *value);
}

EXPORT int ttforge_run(Harness *harness, uint64_t cycles, uint64_t idle_cycles) {
    return int(harness->run(cycles, idle_cycles));
}

EXPORT const char *ttforge_fault(const Harness *harness) { return harness->fault.c_str(); }

EXPORT uint64_t ttforge_cycles(const Harness *harness) { return harness->cycles; }

EXPORT uint64_t ttforge_beats_read(const Harness *harness) { return harness->memory.beats_read(); }

EXPORT uint64_t ttforge_beats_written(const Harness *harness) {
    return harness->memory.beats_written();
}

EXPORT void ttforge_trace(Harness *harness, int enable) { harness->trace(enable != 0); }

EXPORT uint64_t ttforge_commands_length(const Harness *harness) {
    return harness->commands.size();
}

EXPORT void ttforge_commands_copy(const Harness *harness, uint64_t *records) {
    static_assert(sizeof(ttforge::CommandTrace) == 6 * sizeof(uint64_t), "copied as integers");
    std::memcpy(records, harness->commands.data(),
                harness->commands.size() * sizeof(ttforge::CommandTrace));
}

EXPORT uint64_t ttforge_trace_length(const Harness *harness, int engine) {
    return harness->traces[engine].addresses.size();
}

EXPORT void ttforge_trace_copy(const Harness *harness, int engine, uint32_t *addresses,
                               uint8_t *rows) {
    const ttforge::TraceBuffer &buffer = harness->traces[engine];
    std::memcpy(addresses, buffer.addresses.data(), buffer.addresses.size() * sizeof(uint32_t));
    std::memcpy(rows, buffer.rows.data(), buffer.rows.size());
}
