#include "harness.h"

#include <cstdio>

#include "model.h"

namespace trainwright {

namespace {

constexpr int RESET_CYCLES = 8;
constexpr int HOST_CYCLES = 1000;  // limit of cycles per register access

Address address_of(uint32_t address, uint32_t id, uint32_t length, uint32_t size, uint32_t burst) {
    return Address{address, id, uint8_t(length), uint8_t(size), uint8_t(burst)};
}

}  // namespace

#define IN(name, value) set(model_->ports().PORT_##name, value)
#define OUT(name) get(model_->ports().PORT_##name)

Harness::Harness(uint8_t *bytes, uint64_t size)
    : memory(bytes, size, BEAT_BYTES), traces(TRACED), model_(new Model), open_(ENGINES) {
    reset();
}

Harness::~Harness() = default;

bool Harness::fail(const std::string &message) {
    if (fault.empty()) fault = message + " in cycle " + std::to_string(cycles);
    return false;
}

void Harness::reset() {
    IN(s_axil_awvalid, 0);
    IN(s_axil_wvalid, 0);
    IN(s_axil_bready, 0);
    IN(s_axil_arvalid, 0);
    IN(s_axil_rready, 0);
    IN(rst, 1);
    memory.reset();
    fault.clear();
    drive_memory_port();
    for (int n = 0; n < RESET_CYCLES; ++n) {  // the memory sees no signal of the reset
        model_->clock();
        ++cycles;
    }
    IN(rst, 0);
    model_->clock();
    beats_seen_ = memory.beats_read() + memory.beats_written();
    last_beat_ = cycles;
}

inline void Harness::sample_memory_port() {
    requests_.b_ready = OUT(m_axi_bready);
    requests_.r_ready = OUT(m_axi_rready);
    if ((requests_.ar_valid = OUT(m_axi_arvalid))) {
        requests_.ar = address_of(OUT(m_axi_araddr), OUT(m_axi_arid), OUT(m_axi_arlen),
                                  OUT(m_axi_arsize), OUT(m_axi_arburst));
    }
    if ((requests_.aw_valid = OUT(m_axi_awvalid))) {
        requests_.aw = address_of(OUT(m_axi_awaddr), OUT(m_axi_awid), OUT(m_axi_awlen),
                                  OUT(m_axi_awsize), OUT(m_axi_awburst));
    }
    if ((requests_.w_valid = OUT(m_axi_wvalid))) {
        requests_.w_last = OUT(m_axi_wlast);
        requests_.w_strobe = OUT(m_axi_wstrb);
        get_bytes<BEAT_BYTES>(model_->ports().PORT_m_axi_wdata, requests_.w_data);
    }
}

inline void Harness::drive_memory_port() {
    const Responses &r = memory.responses();
    IN(m_axi_arready, r.ar_ready);
    IN(m_axi_awready, r.aw_ready);
    IN(m_axi_wready, r.w_ready);
    IN(m_axi_bvalid, r.b_valid);
    IN(m_axi_rvalid, r.r_valid);
    if (r.b_valid) {
        IN(m_axi_bid, r.b_id);
        IN(m_axi_bresp, r.b_response);
    }
    if (r.r_valid) {
        IN(m_axi_rid, r.r_id);
        IN(m_axi_rresp, r.r_response);
        IN(m_axi_rlast, r.r_last);
        set_bytes<BEAT_BYTES>(model_->ports().PORT_m_axi_rdata, r.r_data);
    }
}

inline void Harness::sample_trace() {
#ifdef TRACE
#define SAMPLE(index, engine)                                                          \
    if (OUT(trace_##engine##_valid)) {                                                 \
        TraceBuffer &buffer = traces[index];                                           \
        buffer.addresses.push_back(OUT(trace_##engine##_address));                     \
        buffer.rows.resize(buffer.rows.size() + ROW_BYTES);                            \
        get_bytes<ROW_BYTES>(model_->ports().PORT_trace_##engine##_row,                 \
                             buffer.rows.data() + buffer.rows.size() - ROW_BYTES);     \
    }
    EACH_TRACED(SAMPLE)
#undef SAMPLE
    sample_commands(OUT(trace_events), OUT(trace_number));
#endif
}

// `events`: for each of accept, busy, older, stall_operand and stall_result one bit per engine.
// Engines outside of ARRAYS do not tell their commands apart: a command is done when the engine takes
// the next one or has none left.
inline void Harness::sample_commands(uint32_t events, uint32_t number) {
    static_assert(5 * ENGINES <= 32, "the events of all engines fit a word");
    for (unsigned engine = 0; engine < ENGINES; ++engine) {
        const bool is_array = ARRAYS >> engine & 1;
        std::vector<size_t> &open = open_[engine];
        auto bit = [&](unsigned event) { return events >> (ENGINES * event + engine) & 1; };
        size_t flying = bit(1) + (is_array ? bit(2) : 0);
        while (open.size() > flying) {
            commands[open.front()].done = cycles;
            open.erase(open.begin());
        }
        if (!open.empty()) {
            commands[open.front()].stall_operand += bit(3);
            commands[open.front()].stall_result += bit(4);
        }
        if (bit(0)) {
            if (!is_array && !open.empty()) {
                commands[open.front()].done = cycles;
                open.clear();
            }
            open.push_back(commands.size());
            commands.push_back({engine, number, cycles, cycles, 0, 0});
        }
    }
}

inline void Harness::advance() {
    sample_memory_port();
    if (tracing_) sample_trace();
    memory.step(requests_);
    drive_memory_port();
    model_->clock();
    ++cycles;
}

bool Harness::access_failed(const char *what, uint32_t address, uint32_t response) {
    char text[80];
    std::snprintf(text, sizeof text, "register %s 0x%03x: %s", what, unsigned(address),
                  response ? "error response" : "no answer");
    return fail(text);
}

bool Harness::write_register(uint32_t address, uint32_t value) {
    IN(s_axil_awaddr, address);
    IN(s_axil_wdata, value);
    IN(s_axil_wstrb, 15);
    IN(s_axil_awvalid, 1);
    IN(s_axil_wvalid, 1);
    IN(s_axil_bready, 1);
    last_beat_ = cycles;
    for (int n = 0; n < HOST_CYCLES; ++n) {
        advance();
        const bool address_taken = OUT(s_axil_awready), data_taken = OUT(s_axil_wready);
        const bool answered = OUT(s_axil_bvalid);
        const uint32_t response = OUT(s_axil_bresp);
        if (address_taken) IN(s_axil_awvalid, 0);
        if (data_taken) IN(s_axil_wvalid, 0);
        if (!answered) continue;
        IN(s_axil_bready, 0);
        return response ? access_failed("write", address, response) : true;
    }
    return access_failed("write", address, 0);
}

bool Harness::read_register(uint32_t address, uint32_t &value) {
    IN(s_axil_araddr, address);
    IN(s_axil_arvalid, 1);
    IN(s_axil_rready, 1);
    last_beat_ = cycles;
    for (int n = 0; n < HOST_CYCLES; ++n) {
        advance();
        const bool address_taken = OUT(s_axil_arready), answered = OUT(s_axil_rvalid);
        const uint32_t response = OUT(s_axil_rresp);
        value = OUT(s_axil_rdata);
        if (address_taken) IN(s_axil_arvalid, 0);
        if (!answered) continue;
        IN(s_axil_rready, 0);
        return response ? access_failed("read", address, response) : true;
    }
    return access_failed("read", address, 0);
}

Stop Harness::run(uint64_t limit, uint64_t idle_cycles) {
    const uint64_t stop = cycles + limit;
    while (cycles < stop) {
        advance();
        if (!memory.fault().empty()) {
            fail("memory port, " + memory.fault());
            return Stop::FAULT;
        }
        if (OUT(interrupt)) return Stop::INTERRUPT;
        const uint64_t beats = memory.beats_read() + memory.beats_written();
        if (beats != beats_seen_) {
            beats_seen_ = beats;
            last_beat_ = cycles;
        } else if (cycles - last_beat_ > idle_cycles) {
            return Stop::IDLE;
        }
    }
    return Stop::CYCLES;
}

void Harness::trace(bool enable) {
    for (TraceBuffer &buffer : traces) buffer = TraceBuffer{};
    commands.clear();
    for (std::vector<size_t> &open : open_) open.clear();
    tracing_ = enable;
}

}  // namespace trainwright
