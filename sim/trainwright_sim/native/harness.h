// The design, its memory and its host port, one clock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace trainwright {

class Model;  // model.h, which only harness.cc includes: it may define the whole design

// Rows that one engine wrote to the scratchpad, in order.
struct TraceBuffer {
    std::vector<uint32_t> addresses;
    std::vector<uint8_t> rows;  // ROW_BYTES each
};

// A command of an engine (load, store, pe1, pe2): the descriptor, the cycles in which it was taken
// and was done, and those in which it waited for operands or memory, and for credit.
struct CommandTrace {
    uint64_t engine, number, taken, done, stall_operand, stall_result;
};

enum class Stop { CYCLES = 0, INTERRUPT = 1, IDLE = 2, FAULT = 3 };

class Harness {
public:
    Harness(uint8_t *bytes, uint64_t size);
    ~Harness();

    void reset();

    // One AXI4-Lite access. False after a fault: an error response or none in time.
    bool write_register(uint32_t address, uint32_t value);
    bool read_register(uint32_t address, uint32_t &value);

    // Until the interrupt is high, at most `cycles`; IDLE after `idle_cycles` without a beat on
    // the memory port, counted over calls since the last register access.
    Stop run(uint64_t cycles, uint64_t idle_cycles);

    // Forget the traces, and record from now on or no more.
    void trace(bool enable);

    Memory memory;
    std::array<TraceBuffer, 3> traces;  // load, pe1, pe2
    std::vector<CommandTrace> commands;
    uint64_t cycles = 0;                // since the design was made
    std::string fault;

private:
    // Ends a cycle: hand over what the ports agreed on, clock, count. Inputs of the register port
    // that were set before are seen by the design in the cycle that begins.
    void advance();
    void sample_memory_port();
    void drive_memory_port();
    void sample_trace();
    void sample_commands(uint32_t events, uint32_t number);
    bool fail(const std::string &message);
    bool access_failed(const char *what, uint32_t address, uint32_t response);

    std::unique_ptr<Model> model_;
    Requests requests_;
    bool tracing_ = false;
    std::array<std::vector<size_t>, 4> open_;  // commands of each engine that are not done
    uint64_t beats_seen_ = 0, last_beat_ = 0;
};

}  // namespace trainwright
