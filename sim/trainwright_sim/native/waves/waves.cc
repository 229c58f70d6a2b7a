// The harness with a waveform: a Model whose clock() also records while a window is open.
//
// This file includes ../harness.cc, which then uses this Model instead of its own; simulators
// without waveforms are built from harness.cc alone.
#define ENGINE_VERILATOR
#define Model PlainModel
#include "../model.h"
#undef Model

#include "../harness.h"
#include "verilated_fst_c.cpp"

namespace trainwright {

class Model;

namespace {

constexpr uint64_t CYCLE = 10;  // time units of a cycle: its number is the time without last digit
constexpr uint64_t TAIL = 4;    // cycles after the last command of a window
constexpr size_t CODES = 1 << 22;  // more than the words of all signals of a design

}  // namespace

// Access to a private member of Verilator's: an explicit instantiation may name one.
template <auto Member>
struct Opened {
    friend Model &model_of(Harness &harness) { return *(harness.*Member); }
};
template <auto Writer, auto Chosen>
struct OpenedFile {
    friend std::vector<bool> &chosen_of(VerilatedFstC &file) { return file.*Writer.*Chosen; }
};
Model &model_of(Harness &harness);
std::vector<bool> &chosen_of(VerilatedFstC &file);
template struct OpenedFile<&VerilatedFstC::m_sptrace, &VerilatedFst::Super::m_sigs_enabledVec>;

namespace {

// Waveform of the cycles from the first command of descriptors first..last until all are done.
class Waveform {
public:
    Waveform(const Harness &harness, Vsimulated &top, const char *path, const char *signals)
        : harness_(harness), path_(path) {
        top.contextp()->traceEverOn(true);
        top.trace(&file_, 99);
        for (const char *end; *signals; signals = *end ? end + 1 : end) {
            end = signals + std::strcspn(signals, "\n");
            file_.dumpvars(99, std::string(signals, end));  // a scope with all that is in it
        }
        // Verilator 5.048 clears this vector, fills it up to the last signal chosen and reads a bit
        // for every signal: behind its end bits of any value, for signals that the file has not.
        chosen_of(file_).assign(CODES, false);
    }

    void between(uint64_t first, uint64_t last) { first_ = first, last_ = last; }

    // Looks for commands of the present cycle. False once the file is complete.
    bool look() {
        const auto &commands = harness_.commands;
        for (; looked_ < commands.size(); ++looked_) {
            const auto &command = commands[looked_];
            if (command.number < first_ || command.number > last_) continue;
            inside_.push_back(looked_);
            complete_ |= command.number == last_;
        }
        if (inside_.empty()) return true;
        if (!file_.isOpen()) dump(now());
        bool done = complete_;
        // The harness has not met the end of a command whose cycles of beginning and end agree.
        for (size_t index : inside_) done &= commands[index].done != commands[index].taken;
        return !done || ++after_ <= TAIL;
    }

    // An edge of the clock, which begins the next cycle if it is a rising one.
    void edge(bool rising) {
        if (file_.isOpen()) dump(now() + CYCLE + (rising ? 0 : CYCLE / 2));
    }

    void dump(uint64_t time) {
        if (!file_.isOpen()) file_.open(path_.c_str());
        file_.dump(time);
    }

private:
    uint64_t now() const { return CYCLE * (harness_.cycles - harness_.commands.front().taken); }

    const Harness &harness_;
    std::string path_;
    VerilatedFstC file_;
    uint64_t first_ = 0, last_ = 0, after_ = 0;
    size_t looked_ = 0;           // commands seen so far
    std::vector<size_t> inside_;  // those of the window
    bool complete_ = false;       // whether the last descriptor has begun
};

}  // namespace

class Model : public PlainModel {
public:
    void clock() {
        if (waveform && !waveform->look()) waveform.reset();
        if (!waveform) return PlainModel::clock();
        for (uint8_t level : {1, 0}) {
            ports().clk = level;
            ports().eval();
            waveform->edge(level);
        }
    }

    std::unique_ptr<Waveform> waveform;
};

template struct Opened<&Harness::model_>;

}  // namespace trainwright

#include "../harness.cc"

using trainwright::Harness;
using trainwright::Waveform;

#define EXPORT extern "C" __attribute__((visibility("default")))

// Write a file with every signal, and the values of now.
EXPORT void trainwright_signals(Harness *harness, const char *path) {
    Waveform(*harness, model_of(*harness).ports(), path, "").dump(0);
}

// Write a waveform of the next run to `path`; `signals` are names in lines, none for every signal.
EXPORT void trainwright_waveform(Harness *harness, const char *path, const char *signals,
                                 uint64_t first, uint64_t last) {
    auto &model = model_of(*harness);
    model.waveform = std::make_unique<Waveform>(*harness, model.ports(), path, signals);
    model.waveform->between(first, last);
}

// End a waveform whose window is still open.
EXPORT void trainwright_waveform_end(Harness *harness) { model_of(*harness).waveform.reset(); }
