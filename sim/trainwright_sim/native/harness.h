// Harness: the design, its memory and its host port, on one clock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace trainwright {

class Model;  // model.h, which only harness.cc includes: it may define the whole design

// Rows that an engine wrote to the scratchpad, in order.
struct TraceBuffer {
    std::vector<uint32_t> addresses;
    std::vector<uint8_t> rows;  // ROW_BYTES each
};

// Command of an engine, by its bit: the descriptor, the cycles in which the engine took
// and finished it, and the cycles it waited for operands or memory, and for credit.
struct CommandTrace {
    uint64_t engine, number, taken, done, stall_operand, stall_result;
};

enum class Stop { CYCLES = 0, INTERRUPT = 1, IDLE = 2, FAULT = 3 };

class Harness {
public:
    Harness(uint8_t *bytes, uint64_t size);
    ~Harness();

    void reset();

    // Access a register over AXI4-Lite. False after a fault: an error response, or none in time.
    bool write_register(uint32_t address, uint32_t value);
    bool read_register(uint32_t address, uint32_t &value);

    // Run until the interrupt is high, at most `cycles`; IDLE after `idle_cycles` without a beat on
    // the memory port, counted over calls since the last register access.
    Stop run(uint64_t cycles, uint64_t idle_cycles);

    // Clear the traces, and start or stop recording.
    void trace(bool enable);

    Memory memory;
    std::vector<TraceBuffer> traces;  // of each engine that writes rows
    std::vector<CommandTrace> commands;
    uint64_t cycles = 0;                // since construction
    std::string fault;

private:
    // End a cycle: exchange data that the ports agreed on, clock the design, count. The design sees
    // inputs of the register port that were set before in the cycle that begins.
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
    std::vector<std::vector<size_t>> open_;  // unfinished commands of each engine
    uint64_t beats_seen_ = 0, last_beat_ = 0;
};

}  // namespace trainwright
