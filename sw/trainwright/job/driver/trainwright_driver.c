#include "trainwright_driver.h"

#include "trainwright_registers.h"

/* Limit of Python's driver, too: twenty times the slowest memory that a simulation takes. */
#define WATCHDOG_CYCLES 200000u
#define PAGE_BYTES 4096u

static uint32_t get(const trainwright_platform *platform, uint32_t offset) {
    return platform->read_register(platform->context, offset);
}

static void put(const trainwright_platform *platform, uint32_t offset, uint32_t value) {
    platform->write_register(platform->context, offset, value);
}

static uint32_t field(uint32_t word, uint32_t mask, uint32_t shift) { return (word & mask) >> shift; }

/* ---- Setting up ---------------------------------------------------------------------------------- */

trainwright_result trainwright_open(const trainwright_platform *platform,
                                    const trainwright_job *job) {
    if (get(platform, TRAINWRIGHT_IDENTITY) != TRAINWRIGHT_IDENTITY_RESET)
        return TRAINWRIGHT_NO_ACCELERATOR;
    if (get(platform, TRAINWRIGHT_FINGERPRINT) != job->fingerprint)
        return TRAINWRIGHT_OTHER_PARAMETERS;
    if (get(platform, TRAINWRIGHT_STATUS) & TRAINWRIGHT_STATUS_BUSY_MASK)
        return TRAINWRIGHT_UNDER_WAY;
    put(platform, TRAINWRIGHT_INTERRUPT_ENABLE, 1);
    put(platform, TRAINWRIGHT_WATCHDOG, WATCHDOG_CYCLES);
#ifdef TRAINWRIGHT_WINDOW_LAST /* accelerators with address_checks=1 */
    put(platform, TRAINWRIGHT_WINDOW_LAST, (job->memory_bytes - 1) / PAGE_BYTES);
#endif
    return TRAINWRIGHT_OK;
}

void trainwright_set_exponents(const trainwright_platform *platform, const int8_t *values,
                               uint32_t count) {
    for (uint32_t slot = 0; slot < count; ++slot)
        put(platform, TRAINWRIGHT_EXPONENT(slot), (uint32_t)(int32_t)values[slot]);
}

void trainwright_set_order(const trainwright_platform *platform, const uint32_t order[3]) {
    put(platform, TRAINWRIGHT_ORDER_NEXT, order[0]);
    put(platform, TRAINWRIGHT_ORDER_INCREMENT, order[1]);
    put(platform, TRAINWRIGHT_ORDER_LEFT, order[2]);
}

/* ---- Running ------------------------------------------------------------------------------------- */

void trainwright_start(const trainwright_platform *platform, const trainwright_program *program,
                       uint32_t times, uint32_t step) {
    put(platform, TRAINWRIGHT_CONTROL, TRAINWRIGHT_CONTROL_CLEAR_MASK);
    put(platform, TRAINWRIGHT_TIMES, times);
    put(platform, TRAINWRIGHT_STEP, step);
    put(platform, TRAINWRIGHT_PROGRAM_ADDRESS, program->address);
    put(platform, TRAINWRIGHT_PROGRAM_LENGTH, program->descriptors);
    put(platform, TRAINWRIGHT_CONTROL, TRAINWRIGHT_CONTROL_START_MASK);
}

trainwright_result trainwright_wait(const trainwright_platform *platform,
                                    trainwright_failure *failure) {
    uint32_t status;
    /* The accelerator's own watchdog ends a run that hangs, so that this loop ends. */
    while ((status = get(platform, TRAINWRIGHT_STATUS)) & TRAINWRIGHT_STATUS_BUSY_MASK)
        if (platform->idle) platform->idle(platform->context);
    if (!(status & TRAINWRIGHT_STATUS_ERROR_MASK)) return TRAINWRIGHT_OK;
    failure->code = field(status, TRAINWRIGHT_STATUS_CODE_MASK, TRAINWRIGHT_STATUS_CODE_SHIFT);
    failure->descriptor =
        field(status, TRAINWRIGHT_STATUS_DESCRIPTOR_MASK, TRAINWRIGHT_STATUS_DESCRIPTOR_SHIFT);
    failure->hung = field(status, TRAINWRIGHT_STATUS_HUNG_MASK, TRAINWRIGHT_STATUS_HUNG_SHIFT);
    return TRAINWRIGHT_STOPPED;
}

/* ---- Results ------------------------------------------------------------------------------------- */

trainwright_statistics trainwright_read_statistics(const trainwright_platform *platform,
                                                   uint32_t slot) {
    trainwright_statistics result;
    result.sum = get(platform, TRAINWRIGHT_SUM_LOW(slot));
    result.sum |= (uint64_t)get(platform, TRAINWRIGHT_SUM_HIGH(slot)) << 32;
    result.saturations = get(platform, TRAINWRIGHT_SATURATIONS(slot));
    result.underflows = get(platform, TRAINWRIGHT_UNDERFLOWS(slot));
    return result;
}

int32_t trainwright_read_exponent(const trainwright_platform *platform, uint32_t slot) {
    return (int32_t)get(platform, TRAINWRIGHT_EXPONENT(slot));
}

int32_t trainwright_read_value(const trainwright_platform *platform,
                               const trainwright_tensor *tensor,
                               const uint32_t index[TRAINWRIGHT_DIMENSIONS]) {
    uint8_t bytes[2] = {0, 0};
    uint32_t address = tensor->address;
    for (uint32_t n = 0; n < tensor->dimensions; ++n) address += index[n] * tensor->stride[n];
    platform->read_memory(platform->context, address, bytes, tensor->element_bytes);
    if (tensor->element_bytes == 1) return (int8_t)bytes[0];
    return (int16_t)(uint16_t)(bytes[0] | bytes[1] << 8);
}

/* ---- Jobs ---------------------------------------------------------------------------------------- */

uint32_t trainwright_crc32(const uint8_t *bytes, uint32_t count) {
    uint32_t crc = 0xFFFFFFFFu;
    while (count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static trainwright_result start_and_compare(const trainwright_platform *platform,
                                            const trainwright_job *job,
                                            const trainwright_action *action,
                                            trainwright_report report,
                                            trainwright_failure *failure) {
    trainwright_start(platform, &job->program[action->program], action->count, action->step);
    const trainwright_result result = trainwright_wait(platform, failure);
    if (result != TRAINWRIGHT_OK) return result;
    const trainwright_statistics now = trainwright_read_statistics(platform, job->loss_slot);
    if (report) report(platform->context, action, &now);
    if (now.sum != action->loss || now.saturations != action->correct)
        return TRAINWRIGHT_OTHER_RESULT;
    return TRAINWRIGHT_OK;
}

trainwright_result trainwright_run(const trainwright_platform *platform,
                                   const trainwright_job *job, const uint8_t *contents,
                                   uint32_t contents_bytes, trainwright_report report,
                                   trainwright_failure *failure) {
    const trainwright_failure none = {0, 0, 0, 0};
    *failure = none;
    if (contents_bytes != job->contents_bytes ||
        trainwright_crc32(contents, contents_bytes) != job->contents_crc32)
        return TRAINWRIGHT_OTHER_CONTENTS;
    trainwright_result result = trainwright_open(platform, job);
    for (uint32_t n = 0; n < job->actions && result == TRAINWRIGHT_OK; ++n) {
        const trainwright_action *action = &job->action[n];
        const uint8_t *bytes = contents + action->offset;
        failure->action = n;
        switch (action->kind) {
        case TRAINWRIGHT_WRITE:
            platform->write_memory(platform->context, action->address, bytes, action->count);
            break;
        case TRAINWRIGHT_EXPONENTS:
            trainwright_set_exponents(platform, (const int8_t *)bytes, action->count);
            break;
        case TRAINWRIGHT_ORDER:
            trainwright_set_order(platform, action->order);
            break;
        case TRAINWRIGHT_START:
            result = start_and_compare(platform, job, action, report, failure);
            break;
        }
    }
    return result;
}
