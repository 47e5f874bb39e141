/* A stand-in libnvidia-ml.so.1: plays the driver and the GPUs that the generated scenario.h
 * describes, through the public NVML interface, to whatever bindings load it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    LIBRARY_NOT_FOUND = 12,
    FUNCTION_NOT_FOUND = 13,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* A handle names a GPU, or one MIG instance of it; `instance` is -1 for the GPU itself. */
struct handle {
    unsigned gpu;
    int instance;
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
};

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, code;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
    } value;
};

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

static struct handle handles[GPU_COUNT + 1][MIG_LIMIT + 1];
static int starts;

/* Never comes back: what a call into a stuck driver looks like. */
static void hang(void) {
    for (;;)
        pause();
}

static int text(char *to, unsigned size, const char *from) {
    if (!to)
        return INVALID_ARGUMENT;
    if (strlen(from) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}

static const struct gpu *gpu_of(const struct handle *handle) { return &gpus[handle->gpu]; }

static int handle_of(unsigned gpu, int instance, struct handle **answer) {
    struct handle *handle = &handles[gpu][instance + 1];
    handle->gpu = gpu;
    handle->instance = instance;
    *answer = handle;
    return OK;
}

static long long health_of(const struct handle *handle, int what) {
    return gpu_of(handle)->health[what];
}

#define NEEDS_START                                                                              \
    if (!starts)                                                                                 \
        return UNINITIALIZED
#define NEEDS(handle)                                                                            \
    NEEDS_START;                                                                                 \
    if (!(handle))                                                                               \
        return INVALID_ARGUMENT

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (NVML_FAULT == FAULT_HANG)
        hang();
    if (NVML_FAULT == FAULT_CRASH)
        raise(SIGSEGV);
    if (NVML_INIT != OK)
        return NVML_INIT;
    starts++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    NEEDS_START;
    starts--;
    return OK;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK:
        return "Success";
    case UNINITIALIZED:
        return "Uninitialized";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case 4:
        return "Insufficient Permissions";
    case NOT_FOUND:
        return "Not Found";
    case INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case 9:
        return "Driver Not Loaded";
    case LIBRARY_NOT_FOUND:
        return "NVML Shared Library Not Found";
    case FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case 15:
        return "GPU is lost";
    case 18:
        return "Driver/library version mismatch";
    default:
        return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    NEEDS_START;
    return text(to, size, DRIVER_VERSION);
}

int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return text(to, size, NVML_VERSION); }

/* As the real one: the answer is that of the libcuda this process would load, so that a
 * compatibility libcuda in front shows here too, unless the scenario pins a number. */
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    void *library;
    int (*ask)(int *);
    if (!version)
        return INVALID_ARGUMENT;
    if (NVML_CUDA_PINNED) {
        *version = NVML_CUDA;
        return OK;
    }
    if (!(library = dlopen("libcuda.so.1", RTLD_NOW)))
        return LIBRARY_NOT_FOUND;
    if (!(ask = (int (*)(int *))dlsym(library, "cuDriverGetVersion")))
        return FUNCTION_NOT_FOUND;
    return ask(version) ? FUNCTION_NOT_FOUND : OK;
}

/* The first version of the call falls back to a number built in when libcuda does not answer. */
int nvmlSystemGetCudaDriverVersion(int *version) {
    if (nvmlSystemGetCudaDriverVersion_v2(version) != OK && version)
        *version = CUDA_VERSION;
    return version ? OK : INVALID_ARGUMENT;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    NEEDS(count);
    *count = NVML_FAULT == FAULT_GARBAGE ? 4000000000u : GPU_COUNT;
    return OK;
}

int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* With garbage, every index has a GPU: a loop over the count would not end in this life. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **handle) {
    NEEDS(handle);
    if (NVML_FAULT == FAULT_HANG_LATER)
        hang();
    if (NVML_FAULT == FAULT_GARBAGE)
        return handle_of(0, -1, handle);
    if (index >= GPU_COUNT)
        return INVALID_ARGUMENT;
    if (gpus[index].health[HEALTH_HANDLE] < 0)
        return (int)-gpus[index].health[HEALTH_HANDLE];
    return NVML_DEVICE == OK ? handle_of(index, -1, handle) : NVML_DEVICE;
}

int nvmlDeviceGetHandleByIndex(unsigned index, struct handle **handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **handle) {
    NEEDS(uuid);
    for (unsigned index = 0; index < GPU_COUNT; index++) {
        if (!strcmp(uuid, gpus[index].uuid))
            return handle_of(index, -1, handle);
        for (unsigned mig = 0; mig < gpus[index].mig_count; mig++)
            if (!strcmp(uuid, gpus[index].mig_uuids[mig]))
                return handle_of(index, (int)mig, handle);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(const struct handle *handle, char *to, unsigned size) {
    char name[256];
    NEEDS(handle);
    snprintf(name, sizeof name, "%s%s%s", gpu_of(handle)->name,
             handle->instance < 0 ? "" : " MIG ",
             handle->instance < 0 ? "" : gpu_of(handle)->mig_profile);
    return text(to, size, name);
}

int nvmlDeviceGetUUID(const struct handle *handle, char *to, unsigned size) {
    NEEDS(handle);
    if (handle->instance < 0)
        return text(to, size, gpu_of(handle)->uuid);
    return text(to, size, gpu_of(handle)->mig_uuids[handle->instance]);
}

int nvmlDeviceGetIndex(const struct handle *handle, unsigned *index) {
    NEEDS(handle);
    *index = handle->instance < 0 ? handle->gpu : (unsigned)handle->instance;
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(const struct handle *handle, int *major, int *minor) {
    NEEDS(handle);
    *major = gpu_of(handle)->major;
    *minor = gpu_of(handle)->minor;
    return OK;
}

/* Bytes of the GPU, or of the MIG instance: an equal share for each that can exist. */
static unsigned long long bytes_of(const struct handle *handle) {
    unsigned long long all = gpu_of(handle)->memory;
    return handle->instance < 0 ? all : all / (MIG_LIMIT + 1);
}

int nvmlDeviceGetMemoryInfo(const struct handle *handle, struct memory *memory) {
    NEEDS(handle);
    memory->total = bytes_of(handle);
    if (health_of(handle, HEALTH_USED_MIB) < 0)
        return (int)-health_of(handle, HEALTH_USED_MIB);
    memory->used = NVML_FAULT == FAULT_GARBAGE ? ~0ull : 0;
    if (NVML_FAULT != FAULT_GARBAGE && handle->instance < 0)
        memory->used = (unsigned long long)health_of(handle, HEALTH_USED_MIB) << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(const struct handle *handle, struct memory_v2 *memory) {
    struct memory plain;
    NEEDS(handle);
    if (memory->version != (sizeof *memory | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    int code = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (code != OK)
        return code;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return OK;
}

int nvmlDeviceGetMigMode(const struct handle *handle, unsigned *now, unsigned *pending) {
    NEEDS(handle);
    if (gpu_of(handle)->mig < 0)
        return NOT_SUPPORTED;
    *now = *pending = (unsigned)gpu_of(handle)->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(const struct handle *handle, unsigned *count) {
    NEEDS(handle);
    *count = NVML_FAULT == FAULT_GARBAGE ? 4000000000u : gpu_of(handle)->mig < 0 ? 0 : MIG_LIMIT;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const struct handle *handle, unsigned index,
                                        struct handle **instance) {
    NEEDS(handle);
    if (gpu_of(handle)->mig != 1)
        return NOT_SUPPORTED;
    if (index >= gpu_of(handle)->mig_count)
        return NOT_FOUND;
    return handle_of(handle->gpu, (int)index, instance);
}

int nvmlDeviceIsMigDeviceHandle(const struct handle *handle, unsigned *answer) {
    NEEDS(handle);
    *answer = handle->instance >= 0;
    return OK;
}

int nvmlDeviceGetComputeMode(const struct handle *handle, unsigned *mode) {
    NEEDS(handle);
    *mode = (unsigned)gpu_of(handle)->compute_mode;
    return OK;
}

int nvmlDeviceGetBrand(const struct handle *handle, unsigned *brand) {
    NEEDS(handle);
    *brand = (unsigned)gpu_of(handle)->brand;
    return OK;
}

int nvmlDeviceGetPciInfo_v3(const struct handle *handle, struct pci *pci) {
    NEEDS(handle);
    memset(pci, 0, sizeof *pci);
    pci->bus = FIRST_BUS + handle->gpu;
    pci->device_id = gpu_of(handle)->pci_device << 16 | 0x10DE;
    snprintf(pci->legacy_bus_id, sizeof pci->legacy_bus_id, "0000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return OK;
}

int nvmlDeviceGetPciInfo(const struct handle *handle, struct pci *pci) {
    return nvmlDeviceGetPciInfo_v3(handle, pci);
}

/* As the real one: without room for all it says how many there are. */
int nvmlDeviceGetComputeRunningProcesses_v3(const struct handle *handle, unsigned *count,
                                            struct process *infos) {
    NEEDS(handle);
    long long there = health_of(handle, HEALTH_PROCESSES);
    unsigned room = *count;
    if (there < 0)
        return (int)-there;
    if (there > 64)
        there = 64;
    *count = (unsigned)there;
    if (!there)
        return OK;
    if (!infos || room < there)
        return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < there; at++)
        infos[at] = (struct process){4000 + at, 1ull << 30, ~0u, ~0u};
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(const struct handle *handle, unsigned *count,
                                            struct process *infos) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, infos);
}

int nvmlDeviceGetComputeRunningProcesses(const struct handle *handle, unsigned *count,
                                         struct process *infos) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, infos);
}

/* -- health: each call answers what the scenario has for its GPU, or the error below zero -- */

static int number(const struct handle *handle, int what, unsigned *to) {
    NEEDS(handle);
    if (health_of(handle, what) < 0)
        return (int)-health_of(handle, what);
    *to = (unsigned)health_of(handle, what);
    return OK;
}

static int large(const struct handle *handle, int what, unsigned long long *to) {
    unsigned plain;
    int code = number(handle, what, &plain);
    if (code == OK)
        *to = NVML_FAULT == FAULT_GARBAGE ? ~0ull : plain;
    return code;
}

/* Of single-bit errors (type 0) the scenario knows nothing. */
int nvmlDeviceGetTotalEccErrors(const struct handle *handle, unsigned type, unsigned counter,
                                unsigned long long *count) {
    int code = large(handle, counter ? HEALTH_ECC_EVER : HEALTH_ECC_NOW, count);
    if (code == OK && type == 0)
        *count = 0;
    return code;
}

int nvmlDeviceGetRemappedRows(const struct handle *handle, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    int code = number(handle, HEALTH_REMAP_PENDING, pending);
    if (code == OK)
        code = number(handle, HEALTH_REMAP_FAILED, failure);
    *corrected = 0;
    *uncorrected = code == OK ? *pending : 0;
    return code;
}

int nvmlDeviceGetRetiredPagesPendingStatus(const struct handle *handle, unsigned *pending) {
    return number(handle, HEALTH_RETIRED_PENDING, pending);
}

/* The recovery action is the one field that is known. */
int nvmlDeviceGetFieldValues(const struct handle *handle, int count, struct field *values) {
    NEEDS(handle);
    for (int at = 0; at < count; at++) {
        values[at].type = 1;
        values[at].code = values[at].id == 230
                              ? number(handle, HEALTH_RECOVERY, &values[at].value.ui)
                              : INVALID_ARGUMENT;
    }
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(const struct handle *handle,
                                           unsigned long long *reasons) {
    return large(handle, HEALTH_CLOCKS, reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const struct handle *handle,
                                              unsigned long long *reasons) {
    return large(handle, HEALTH_CLOCKS, reasons);
}

int nvmlDeviceGetTemperature(const struct handle *handle, unsigned sensor, unsigned *degrees) {
    return sensor ? INVALID_ARGUMENT : number(handle, HEALTH_TEMPERATURE, degrees);
}

int nvmlDeviceGetTemperatureThreshold(const struct handle *handle, unsigned which,
                                      unsigned *degrees) {
    return which == 1 ? number(handle, HEALTH_SLOWDOWN_AT, degrees) : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrPcieLinkGeneration(const struct handle *handle, unsigned *generation) {
    return number(handle, HEALTH_PCIE_GENERATION, generation);
}

int nvmlDeviceGetMaxPcieLinkGeneration(const struct handle *handle, unsigned *generation) {
    return number(handle, HEALTH_PCIE_GENERATION_MAX, generation);
}

int nvmlDeviceGetCurrPcieLinkWidth(const struct handle *handle, unsigned *width) {
    return number(handle, HEALTH_PCIE_WIDTH, width);
}

int nvmlDeviceGetMaxPcieLinkWidth(const struct handle *handle, unsigned *width) {
    return number(handle, HEALTH_PCIE_WIDTH_MAX, width);
}

/* The last of the links are those that are down. */
int nvmlDeviceGetNvLinkState(const struct handle *handle, unsigned link, unsigned *active) {
    unsigned links, down;
    int code = number(handle, HEALTH_LINKS, &links);
    if (code == OK)
        code = number(handle, HEALTH_LINKS_DOWN, &down);
    if (code != OK)
        return code;
    if (link >= links)
        return INVALID_ARGUMENT;
    *active = link + down < links;
    return OK;
}

int nvmlDeviceGetPersistenceMode(const struct handle *handle, unsigned *mode) {
    return number(handle, HEALTH_PERSISTENCE, mode);
}

int nvmlDeviceGetVirtualizationMode(const struct handle *handle, unsigned *mode) {
    return number(handle, HEALTH_VIRTUALIZATION, mode);
}

int nvmlDeviceGetP2PStatus(const struct handle *one, const struct handle *other, int what,
                           unsigned *status) {
    (void)what;
    return other ? number(one, HEALTH_PEERS, status) : INVALID_ARGUMENT;
}

int nvmlDeviceGetGpuFabricInfoV(const struct handle *handle, struct fabric *info) {
    unsigned state;
    int code = number(handle, HEALTH_FABRIC_STATE, &state);
    if (code != OK)
        return code;
    if (info->version != (sizeof *info | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    memset(info->cluster, 0, sizeof info->cluster);
    info->state = (unsigned char)state;
    info->status = (int)health_of(handle, HEALTH_FABRIC_STATUS);
    info->clique = 0;
    info->health = (unsigned)health_of(handle, HEALTH_FABRIC_HEALTH);
    return OK;
}
