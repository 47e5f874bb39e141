/* A stand-in libcuda.so.1: plays the driver and the GPUs that the generated scenario.h
 * describes, through the public driver interface, to ctypes or to a real CUDA runtime.
 *
 * A real libcudart decides everything that matters before its first GPU call with these
 * functions: it asks the version, refuses a driver that is too old, and calls cuInit. Then it
 * wants private tables (cuGetExportTable) and proof that a genuine driver answers. That proof is
 * not imitated: the answer is NO_TABLES, and the runtime gives up with that code.
 *
 * Built with STAND_IN_RUNTIME defined, this file is instead the library that goes in front of
 * that real runtime (LD_PRELOAD) and takes over from there: see the second half. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    STUB_LIBRARY = 34,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NOT_FOUND = 500,
    NO_TABLES = 801,
};

enum {
    WARP_SIZE = 10,
    MULTIPROCESSORS = 16,
    COMPUTE_MODE = 20,
    PCI_BUS = 33,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
};

#ifndef STAND_IN_RUNTIME

#include "scenario.h"

#ifdef FORWARD_COMPATIBILITY
/* What a compatibility libcuda says of itself: owner, size, type, then the JSON text. */
__asm__(".pushsection .note.cuda.fwd_compatibility,\"a\",%note\n"
        ".balign 4\n"
        ".long 2f-1f, 4f-3f, 1\n"
        "1: .asciz \"NVIDIA Corporation\"\n"
        "2: .balign 4\n"
        "3: .ascii " FORWARD_COMPATIBILITY "\n"
        "4: .balign 4\n"
        ".popsection\n");
#endif

/* A CUDA device: a GPU, or the one MIG instance (`instance` >= 0) that a process can have. */
struct device {
    int gpu;
    int instance;
};

static struct device devices[GPU_COUNT + 1];
static int device_count;
static int initialised;

/* Never comes back: what a call into a stuck driver looks like. */
static void hang(void) {
    for (;;)
        pause();
}

static const char *uuid_of(struct device device) {
    const struct gpu *gpu = &gpus[device.gpu];
    return device.instance < 0 ? gpu->uuid : gpu->mig_uuids[device.instance];
}

/* Every device there is, in `found`; how many. One process gets one MIG instance, and with
 * it no whole GPU; a GPU with MIG on and no instance is none. */
static int all_devices(struct device *found) {
    int count = 0;
    for (int gpu = 0; gpu < GPU_COUNT; gpu++)
        if (gpus[gpu].mig == 1 && gpus[gpu].mig_count) {
            found[0] = (struct device){gpu, 0};
            return 1;
        }
    for (int gpu = 0; gpu < GPU_COUNT; gpu++)
        if (gpus[gpu].mig != 1)
            found[count++] = (struct device){gpu, -1};
    return count;
}

/* Where one entry of CUDA_VISIBLE_DEVICES is to be found; 0 when it names no device. */
static int named_device(const char *entry, struct device *found) {
    struct device all[GPU_COUNT + 1];
    int count = all_devices(all);
    char *end;
    long index = strtol(entry, &end, 10);
    if (end != entry) {
        if (index < 0 || index >= count)
            return 0;
        *found = all[index];
        return 1;
    }
    for (int gpu = 0; gpu < GPU_COUNT; gpu++)
        for (int mig = 0; mig < (int)gpus[gpu].mig_count; mig++)
            if (!strcmp(entry, gpus[gpu].mig_uuids[mig])) {
                *found = (struct device){gpu, mig};
                return 1;
            }
    for (int at = 0; at < count; at++)
        if (!strncmp(entry, "GPU-", 4) && !strncmp(entry, uuid_of(all[at]), strlen(entry))) {
            *found = all[at];
            return 1;
        }
    return 0;
}

/* Fills `devices`. CUDA_VISIBLE_DEVICES chooses and orders; the first entry that names none ends
 * the list, and a repeated one empties it. */
static void see_devices(void) {
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    char *copy, *rest, *entry;
    if (!chosen) {
        device_count = all_devices(devices);
        return;
    }
    copy = rest = strdup(chosen);
    while ((entry = strsep(&rest, ","))) {
        struct device device;
        if (!named_device(entry + strspn(entry, " "), &device))
            break;
        for (int at = 0; at < device_count; at++)
            if (!strcmp(uuid_of(devices[at]), uuid_of(device))) {
                device_count = 0;
                free(copy);
                return;
            }
        devices[device_count++] = device;
        if (device.instance >= 0)
            break;
    }
    free(copy);
}

int cuDriverGetVersion(int *version) {
    if (CUDA_FAULT == FAULT_HANG)
        hang();
    if (CUDA_FAULT == FAULT_CRASH)
        raise(SIGSEGV);
    if (CUDA_FAULT == FAULT_STUB)
        return STUB_LIBRARY;
    if (!version)
        return INVALID_VALUE;
    *version = CUDA_FAULT == FAULT_GARBAGE ? -7 : CUDA_VERSION;
    return OK;
}

int cuInit(unsigned flags) {
    int version;
    int code = cuDriverGetVersion(&version);
    if (CUDA_FAULT == FAULT_TRAP)
        abort();
    if (code || flags)
        return code ? code : INVALID_VALUE;
    if (CUDA_INIT != OK)
        return CUDA_INIT;
    if (!initialised)
        see_devices();
    initialised = device_count > 0;
    return initialised ? OK : NO_DEVICE;
}

/* What every call about device `device` must check first. */
static int check(int device) {
    if (CUDA_FAULT == FAULT_STUB)
        return STUB_LIBRARY;
    if (!initialised)
        return NOT_INITIALIZED;
    return device >= 0 && device < device_count ? OK : INVALID_DEVICE;
}

int cuDeviceGetCount(int *count) {
    int code = check(0);
    if (!code)
        *count = CUDA_FAULT == FAULT_GARBAGE ? (int)4000000000u : device_count;
    return code;
}

int cuDeviceGet(int *device, int ordinal) {
    int code = check(ordinal);
    if (!code)
        *device = ordinal;
    return code;
}

int cuDeviceGetName(char *to, int size, int device) {
    int code = check(device);
    const struct gpu *gpu;
    if (code)
        return code;
    gpu = &gpus[devices[device].gpu];
    if (devices[device].instance < 0)
        snprintf(to, (size_t)size, "%s", gpu->name);
    else
        snprintf(to, (size_t)size, "%s MIG %s", gpu->name, gpu->mig_profile);
    return OK;
}

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-…" or "MIG-…". */
int cuDeviceGetUuid_v2(unsigned char *to, int device) {
    int code = check(device);
    const char *from;
    if (code)
        return code;
    memset(to, 0, 16);
    from = uuid_of(devices[device]) + 4;
    for (int at = 0; at < 16 && *from; at++, from += 2) {
        from += *from == '-';
        if (sscanf(from, "%2hhx", to + at) != 1)
            break;
    }
    return OK;
}

int cuDeviceGetUuid(unsigned char *to, int device) { return cuDeviceGetUuid_v2(to, device); }

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    int code = check(device);
    if (code)
        return code;
    *bytes = gpus[devices[device].gpu].memory;
    if (devices[device].instance >= 0)
        *bytes /= MIG_LIMIT + 1;
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int code = check(device);
    const struct gpu *gpu;
    if (code)
        return code;
    gpu = &gpus[devices[device].gpu];
    switch (attribute) {
    case CAPABILITY_MAJOR:
        *value = gpu->major;
        break;
    case CAPABILITY_MINOR:
        *value = gpu->minor;
        break;
    case COMPUTE_MODE:
        *value = gpu->compute_mode;
        break;
    case PCI_BUS:
        *value = FIRST_BUS + devices[device].gpu;
        break;
    case WARP_SIZE:
        *value = 32;
        break;
    case MULTIPROCESSORS:
        *value = gpu->multiprocessors;
        break;
    default:
        *value = 0;
    }
    return OK;
}

int cuDeviceComputeCapability(int *major, int *minor, int device) {
    int code = cuDeviceGetAttribute(major, CAPABILITY_MAJOR, device);
    return code ? code : cuDeviceGetAttribute(minor, CAPABILITY_MINOR, device);
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    int code = check(device);
    if (!code)
        code = check(peer);
    if (!code)
        *can = 0;
    return code;
}

int cuGetErrorName(int code, const char **name) {
    static char answer[32];
    snprintf(answer, sizeof answer, "CUDA_ERROR_%d", code);
    *name = code ? answer : "CUDA_SUCCESS";
    return OK;
}

int cuGetErrorString(int code, const char **words) {
    *words = code ? "an error of the stand-in driver" : "no error";
    return OK;
}

int cuGetExportTable(const void **table, const void *uuid) {
    (void)uuid;
    *table = NULL;
    return CUDA_FAULT == FAULT_STUB ? STUB_LIBRARY : NO_TABLES;
}

/* What stands where a real driver has a function that is not played here. */
static int not_played(void) { return CUDA_FAULT == FAULT_STUB ? STUB_LIBRARY : NO_TABLES; }

/* A framework asks this before it looks at a device. No context is active: none can be made. */
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    int code = check(device);
    if (!code) {
        *flags = 0;
        *active = 0;
    }
    return code;
}

/* A runtime fetches some hundred functions before it asks the version, and gives up if one is not
 * there; all the unknown ones exist, therefore, and refuse. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status) {
    char versioned[128];
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    (void)version;
    (void)flags;
    if (CUDA_FAULT == FAULT_STUB)
        return STUB_LIBRARY;
    if (status)
        *status = 0;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = self ? dlsym(self, versioned) : NULL;
    if (self && !*function)
        *function = dlsym(self, name);
    if (!*function)
        *function = (void *)not_played;
    return OK;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

#else /* STAND_IN_RUNTIME */

/* Where a real libcudart stopped at the missing tables, and only there, these functions answer in
 * its place, from the driver's public interface. Any other answer of the real one is passed on:
 * whether a driver is too old, or there is no GPU, is never decided here. */

static int last_error;
static int current;

/* A function of a library that is already loaded; NULL when there is none. */
static void *find(const char *library, const char *name) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return loaded ? dlsym(loaded, name) : NULL;
}

/* A function of the real runtime, whichever major it is. */
static void *real(const char *name) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    void *function = NULL;
    for (unsigned at = 0; at < sizeof names / sizeof *names && !function; at++)
        function = find(names[at], name);
    return function;
}

#define DRIVER(name, ...) ((int (*)(__VA_ARGS__))find("libcuda.so.1", #name))

/* The number of devices in `count`; a code, which is the real runtime's own unless that one
 * stopped at the tables of a driver that is otherwise fine. */
static int start(int *count) {
    int (*real_count)(int *) = (int (*)(int *))real("cudaGetDeviceCount");
    int code = real_count ? real_count(count) : NO_TABLES;
    if (code != NO_TABLES || !DRIVER(cuInit, unsigned) || DRIVER(cuInit, unsigned)(0) != OK)
        return code;
    return DRIVER(cuDeviceGetCount, int *)(count);
}

static int remember(int code) {
    if (code)
        last_error = code;
    return code;
}

int cudaGetDeviceCount(int *count) { return remember(start(count)); }

int cudaGetDevice(int *device) {
    int count, code = start(&count);
    if (!code)
        *device = current;
    return remember(code);
}

int cudaSetDevice(int device) {
    int count, code = start(&count);
    if (!code && (device < 0 || device >= count))
        code = INVALID_DEVICE;
    if (!code)
        current = device;
    return remember(code);
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    int count, code = start(&count);
    return remember(code ? code : DRIVER(cuDeviceGetAttribute, int *, int, int)(value, attribute,
                                                                               device));
}

int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    int count, code = start(&count);
    return remember(code ? code : DRIVER(cuDeviceCanAccessPeer, int *, int, int)(can, device,
                                                                                peer));
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    int count, code = start(&count);
    if (!code)
        *least = *greatest = 0;
    return remember(code);
}

/* The start of cudaDeviceProp, which is the same from CUDA 12 to 13 but for one number. */
struct properties {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t memory, shared_memory;
    int registers, warp_size;
    size_t pitch;
    int block_threads, block[3], grid[3], clock_before_13;
    size_t constant_memory;
    int major, minor;
    size_t alignment, pitch_alignment;
    int multiprocessors[2]; /* the second one before 13 */
};

int cudaGetDeviceProperties(struct properties *to, int device) {
    int count, version = 0, code = start(&count);
    int (*attribute)(int *, int, int) = DRIVER(cuDeviceGetAttribute, int *, int, int);
    int (*runtime)(int *) = (int (*)(int *))real("cudaRuntimeGetVersion");
    if (code)
        return remember(code);
    if ((code = DRIVER(cuDeviceGetName, char *, int, int)(to->name, sizeof to->name, device)))
        return remember(code);
    if (runtime)
        runtime(&version);
    DRIVER(cuDeviceGetUuid_v2, unsigned char *, int)(to->uuid, device);
    DRIVER(cuDeviceTotalMem_v2, size_t *, int)(&to->memory, device);
    attribute(&to->warp_size, WARP_SIZE, device);
    attribute(&to->major, CAPABILITY_MAJOR, device);
    attribute(&to->minor, CAPABILITY_MINOR, device);
    attribute(&to->multiprocessors[version < 13000], MULTIPROCESSORS, device);
    return OK;
}

int cudaGetDeviceProperties_v2(struct properties *to, int device) {
    return cudaGetDeviceProperties(to, device);
}

int cudaPeekAtLastError(void) { return last_error; }

int cudaGetLastError(void) {
    int code = last_error;
    last_error = OK;
    return code;
}

#endif
