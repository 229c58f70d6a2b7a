// Design behind a serial line: its clock, and the other end of the line.
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <new>
#include <vector>

#include "model.h"
#ifdef SDRAM
#include "sdram_chip.h"
#endif

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

using trainwright::get;
using trainwright::set;

constexpr int RESET_CYCLES = 8;
constexpr int FRAME_BITS = 10;  // start, eight of data, stop

class Board {
public:
    Board(uint32_t divisor, uint64_t period) : divisor_(divisor) {
#ifdef SDRAM
        chip_ = sdram_new(period, SDRAM_POWER_UP);
        if (chip_ == nullptr) throw std::bad_alloc();
#endif
        reset();
    }

#ifdef SDRAM
    ~Board() { sdram_free(chip_); }
    const char *fault() const { return chip_->fault; }
    uint8_t *memory() { return reinterpret_cast<uint8_t *>(chip_->cells); }
#else
    const char *fault() const { return ""; }
    uint8_t *memory() { return nullptr; }
#endif

    // Reset the design; an SDRAM is switched off and on, too.
    void reset() {
        // The line is idle during the reset; bytes in flight are lost.
        to_send_.clear();
        bits_to_send_ = bits_to_come_ = 0;
        set(model_.ports().PORT_rx, 1);
        set(model_.ports().PORT_rst, 1);
        for (int n = 0; n < RESET_CYCLES; ++n) clock();
        set(model_.ports().PORT_rst, 0);
#ifdef SDRAM
        sdram_reset(chip_);
#endif
        for (int n = 0; n < RESET_CYCLES; ++n) clock();
    }

    void send(const uint8_t *bytes, uint64_t size) {
        to_send_.insert(to_send_.end(), bytes, bytes + size);
    }

    // Run until a byte has arrived and nothing is left to send, at most `cycles`.
    void run(uint64_t cycles) {
        for (; cycles > 0; --cycles) {
            if (!received_.empty() && to_send_.empty() && bits_to_come_ == 0) return;
            drive();
            clock();
            sample();
        }
    }

    uint64_t take(uint8_t *bytes, uint64_t most) {
        uint64_t size = received_.size() < most ? received_.size() : most;
        std::memcpy(bytes, received_.data(), size);
        received_.erase(received_.begin(), received_.begin() + size);
        return size;
    }

    uint64_t cycles() const { return cycles_; }

private:
    void clock() {
        model_.clock();
        ++cycles_;
#ifdef SDRAM
        auto &ports = model_.ports();
        const sdram_pins pins = {
            get(ports.PORT_sdram_cke),   get(ports.PORT_sdram_cs_n),  get(ports.PORT_sdram_ras_n),
            get(ports.PORT_sdram_cas_n), get(ports.PORT_sdram_we_n),  get(ports.PORT_sdram_ba),
            get(ports.PORT_sdram_a),     get(ports.PORT_sdram_dqm),   get(ports.PORT_sdram_dq_o),
            get(ports.PORT_sdram_dq_oe)};
        set(ports.PORT_sdram_dq_i, sdram_step(chip_, &pins) & 0xFFFF);
#endif
    }

    void drive() {
        if (bits_to_send_ == 0) {
            if (to_send_.empty()) return;
            sending_ = uint32_t(to_send_.front()) << 1 | 1u << 9;
            to_send_.pop_front();
            bits_to_send_ = FRAME_BITS;
            send_timer_ = 0;
        }
        if (send_timer_ == 0) {
            set(model_.ports().PORT_rx, sending_ & 1);
            sending_ >>= 1;
            send_timer_ = divisor_;
        }
        if (--send_timer_ == 0) --bits_to_send_;
    }

    void sample() {
        uint32_t line = get(model_.ports().PORT_tx);
        if (bits_to_come_ == 0) {
            if (line == 0) {
                bits_to_come_ = FRAME_BITS;
                come_timer_ = divisor_ / 2;
                coming_ = 0;
            }
            return;
        }
        if (--come_timer_ > 0) return;
        come_timer_ = divisor_;
        coming_ = coming_ >> 1 | line << 9;
        if (--bits_to_come_ == 0 && (coming_ & 1) == 0 && (coming_ >> 9) == 1)
            received_.push_back(uint8_t(coming_ >> 1));
    }

    trainwright::Model model_;
#ifdef SDRAM
    static constexpr uint64_t SDRAM_POWER_UP = 200000000;  // picoseconds
    sdram_chip *chip_ = nullptr;
#endif
    uint32_t divisor_;
    uint64_t cycles_ = 0;
    std::deque<uint8_t> to_send_;
    uint32_t sending_ = 0, coming_ = 0, send_timer_ = 0, come_timer_ = 0;
    int bits_to_send_ = 0, bits_to_come_ = 0;
    std::vector<uint8_t> received_;
};

}  // namespace

EXPORT uint32_t trainwright_abi() { return 2; }

EXPORT Board *trainwright_open(uint32_t divisor, uint64_t period) {
    try {
        return new Board(divisor, period);
    } catch (const std::exception &) {
        return nullptr;
    }
}

EXPORT void trainwright_close(Board *board) { delete board; }

EXPORT void trainwright_reset(Board *board) { board->reset(); }

EXPORT void trainwright_send(Board *board, const uint8_t *bytes, uint64_t size) {
    board->send(bytes, size);
}

EXPORT void trainwright_run(Board *board, uint64_t cycles) { board->run(cycles); }

EXPORT uint64_t trainwright_take(Board *board, uint8_t *bytes, uint64_t most) {
    return board->take(bytes, most);
}

EXPORT uint64_t trainwright_cycles(const Board *board) { return board->cycles(); }

EXPORT const char *trainwright_fault(const Board *board) { return board->fault(); }

EXPORT uint8_t *trainwright_memory(Board *board) { return board->memory(); }
