/* Reference driver of the accelerator: C99, bare metal, no allocation, no C library.
 *
 * A job (`trainwright export-job`) is a table of actions: bytes to write, exponents and the order of
 * samples to set, programs to start. trainwright_run() goes through it. Everything else is for
 * drivers that do more: start a program, wait, read statistics, exponents and tensors.
 */
#ifndef TRAINWRIGHT_DRIVER_H
#define TRAINWRIGHT_DRIVER_H

#include <stdint.h>

/* ---- Platform: how the accelerator is reached --------------------------------------------------- */

typedef struct {
    void *context; /* handed to every function below */
    uint32_t (*read_register)(void *context, uint32_t offset);
    void (*write_register)(void *context, uint32_t offset, uint32_t value);
    /* Memory of the accelerator, addresses from 0. Caches are written back or invalidated here. */
    void (*read_memory)(void *context, uint32_t address, void *bytes, uint32_t count);
    void (*write_memory)(void *context, uint32_t address, const void *bytes, uint32_t count);
    /* Called between two looks at STATUS: sleep, wait for the interrupt. May be a null pointer. */
    void (*idle)(void *context);
} trainwright_platform;

/* ---- Job: tables that trainwright_job.h fills ---------------------------------------------------- */

enum { TRAINWRIGHT_DIMENSIONS = 4 };

typedef enum {
    TRAINWRIGHT_WRITE,     /* memory from `address`: `count` bytes of the contents from `offset` */
    TRAINWRIGHT_EXPONENTS, /* exponent file: `count` signed bytes of the contents from `offset` */
    TRAINWRIGHT_ORDER,     /* order of samples: registers NEXT, INCREMENT, LEFT are `order` */
    TRAINWRIGHT_START      /* program number `program`, `count` times, the first as step `step` */
} trainwright_kind;

typedef struct {
    trainwright_kind kind;
    uint32_t address, offset, count;
    uint32_t order[3];
    uint32_t program, step;
    /* Statistics of the job's loss slot after the start, as the golden model computed them. */
    uint64_t loss;
    uint32_t correct;
} trainwright_action;

typedef struct {
    const char *name;
    uint32_t address, descriptors;
} trainwright_program;

typedef struct {
    const char *name;
    uint32_t address, bytes;
} trainwright_buffer;

/* Value [i][j][k][l] is at byte `address` + i * stride[0] + ... : a signed integer of
 * `element_bytes` bytes, little endian, times 2^exponent. */
typedef struct {
    const char *name;
    uint32_t address, element_bytes;
    int32_t exponent;
    uint32_t dimensions, shape[TRAINWRIGHT_DIMENSIONS], stride[TRAINWRIGHT_DIMENSIONS];
} trainwright_tensor;

typedef struct {
    const char *network;
    uint32_t fingerprint;  /* parameters of the accelerator: register FINGERPRINT */
    uint32_t memory_bytes; /* of external memory, from address 0 */
    uint32_t loss_slot;    /* statistics slot of the summed loss and of correct samples */
    uint32_t contents_bytes, contents_crc32;
    uint32_t actions, programs, buffers, tensors; /* lengths of the tables */
    const trainwright_action *action;
    const trainwright_program *program;
    const trainwright_buffer *buffer;
    const trainwright_tensor *tensor; /* factors and biases */
} trainwright_job;

/* ---- Functions ----------------------------------------------------------------------------------- */

typedef enum {
    TRAINWRIGHT_OK,
    TRAINWRIGHT_NO_ACCELERATOR,   /* IDENTITY reads something else */
    TRAINWRIGHT_OTHER_PARAMETERS, /* FINGERPRINT is not the job's */
    TRAINWRIGHT_UNDER_WAY,        /* a run is under way that this driver did not start */
    TRAINWRIGHT_OTHER_CONTENTS,   /* length or CRC-32 of the contents are not the job's */
    TRAINWRIGHT_STOPPED,          /* a run ended with an error: see trainwright_failure */
    TRAINWRIGHT_OTHER_RESULT      /* loss or correct samples are not those of the golden model */
} trainwright_result;

typedef struct {
    uint32_t action;     /* number of the action that failed */
    uint32_t code;       /* TRAINWRIGHT_ERROR_... of trainwright_registers.h, of STOPPED */
    uint32_t descriptor; /* at which the run stopped */
    uint32_t hung;       /* engines that hang, of the watchdog: bit 0 LOAD, STORE, PE1, PE2 */
} trainwright_failure;

typedef struct {
    uint64_t sum;
    uint32_t saturations, underflows;
} trainwright_statistics;

/* Called after each start, with the loss slot's statistics. */
typedef void (*trainwright_report)(void *context, const trainwright_action *action,
                                   const trainwright_statistics *statistics);

/* Check that the job's accelerator is there and idle, and set it up. */
trainwright_result trainwright_open(const trainwright_platform *platform,
                                    const trainwright_job *job);

/* Do all actions of a job; `contents` are the bytes of contents.bin. `report` may be null. */
trainwright_result trainwright_run(const trainwright_platform *platform,
                                   const trainwright_job *job, const uint8_t *contents,
                                   uint32_t contents_bytes, trainwright_report report,
                                   trainwright_failure *failure);

void trainwright_set_exponents(const trainwright_platform *platform, const int8_t *values,
                               uint32_t count);
void trainwright_set_order(const trainwright_platform *platform, const uint32_t order[3]);
void trainwright_start(const trainwright_platform *platform, const trainwright_program *program,
                       uint32_t times, uint32_t step);
trainwright_result trainwright_wait(const trainwright_platform *platform,
                                    trainwright_failure *failure);

trainwright_statistics trainwright_read_statistics(const trainwright_platform *platform,
                                                   uint32_t slot);
int32_t trainwright_read_exponent(const trainwright_platform *platform, uint32_t slot);
int32_t trainwright_read_value(const trainwright_platform *platform,
                               const trainwright_tensor *tensor,
                               const uint32_t index[TRAINWRIGHT_DIMENSIONS]);

uint32_t trainwright_crc32(const uint8_t *bytes, uint32_t count);

#endif
