// A device for TensorFlow's plug-in interface that registers as GPU and computes
// nothing. Its memory is the host's, and its streams are always idle.
//
// See pretending.py, which compiles and loads it.

#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

static void get_device_count(const SP_Platform* p, int* count, TF_Status* s) {
  *count = 1;
}
static void create_device(const SP_Platform* p, SE_CreateDeviceParams* params,
                          TF_Status* s) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "none";
  params->device->device_vendor = "none";
  params->device->pci_bus_id = "0000:00:00.0";
}
static void destroy_device(const SP_Platform* p, SP_Device* d) {}
static void create_device_fns(const SP_Platform* p,
                              SE_CreateDeviceFnsParams* params, TF_Status* s) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}
static void destroy_device_fns(const SP_Platform* p, SP_DeviceFns* f) {}
static uint64_t nanoseconds(SP_Timer t) { return 0; }
static void create_timer_fns(const SP_Platform* p, SP_TimerFns* f,
                             TF_Status* s) {
  f->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  f->nanoseconds = nanoseconds;
}
static void destroy_timer_fns(const SP_Platform* p, SP_TimerFns* f) {}

static void allocate(const SP_Device* d, uint64_t size, int64_t space,
                     SP_DeviceMemoryBase* mem) {
  mem->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  mem->opaque = NULL;
  if (posix_memalign(&mem->opaque, 256, size ? size : 1)) mem->opaque = NULL;
  mem->size = size;
}
static void deallocate(const SP_Device* d, SP_DeviceMemoryBase* mem) {
  free(mem->opaque);
  mem->opaque = NULL;
  mem->size = 0;
}
static void* host_allocate(const SP_Device* d, uint64_t size) {
  void* p = NULL;
  return posix_memalign(&p, 64, size ? size : 1) ? NULL : p;
}
static void host_deallocate(const SP_Device* d, void* mem) { free(mem); }
static TF_Bool get_allocator_stats(const SP_Device* d, SP_AllocatorStats* s) {
  s->struct_size = SP_ALLOCATORSTATS_STRUCT_SIZE;
  return 0;
}
static TF_Bool device_memory_usage(const SP_Device* d, int64_t* free_bytes,
                                   int64_t* total) {
  *free_bytes = *total = (int64_t)1 << 30;
  return 1;
}
static void create_stream(const SP_Device* d, SP_Stream* stream,
                          TF_Status* s) {
  *stream = (SP_Stream)malloc(1);
}
static void destroy_stream(const SP_Device* d, SP_Stream stream) {
  free(stream);
}
static void stream_dependency(const SP_Device* d, SP_Stream a, SP_Stream b,
                              TF_Status* s) {}
static void stream_status(const SP_Device* d, SP_Stream stream, TF_Status* s) {}
static void create_event(const SP_Device* d, SP_Event* event, TF_Status* s) {
  *event = (SP_Event)malloc(1);
}
static void destroy_event(const SP_Device* d, SP_Event event) { free(event); }
static SE_EventStatus event_status(const SP_Device* d, SP_Event event) {
  return SE_EVENT_COMPLETE;
}
static void record_event(const SP_Device* d, SP_Stream stream, SP_Event event,
                         TF_Status* s) {}
static void create_timer(const SP_Device* d, SP_Timer* timer, TF_Status* s) {
  *timer = (SP_Timer)malloc(1);
}
static void destroy_timer(const SP_Device* d, SP_Timer timer) { free(timer); }
static void start_timer(const SP_Device* d, SP_Stream stream, SP_Timer timer,
                        TF_Status* s) {}
static void dtoh(const SP_Device* d, SP_Stream stream, void* to,
                 const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* s) {
  memcpy(to, from->opaque, size);
}
static void htod(const SP_Device* d, SP_Stream stream, SP_DeviceMemoryBase* to,
                 const void* from, uint64_t size, TF_Status* s) {
  memcpy(to->opaque, from, size);
}
static void dtod(const SP_Device* d, SP_Stream stream, SP_DeviceMemoryBase* to,
                 const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* s) {
  memcpy(to->opaque, from->opaque, size);
}
static void sync_dtoh(const SP_Device* d, void* to,
                      const SP_DeviceMemoryBase* from, uint64_t size,
                      TF_Status* s) {
  memcpy(to, from->opaque, size);
}
static void sync_htod(const SP_Device* d, SP_DeviceMemoryBase* to,
                      const void* from, uint64_t size, TF_Status* s) {
  memcpy(to->opaque, from, size);
}
static void sync_dtod(const SP_Device* d, SP_DeviceMemoryBase* to,
                      const SP_DeviceMemoryBase* from, uint64_t size,
                      TF_Status* s) {
  memcpy(to->opaque, from->opaque, size);
}
static void block_for_event(const SP_Device* d, SP_Event e, TF_Status* s) {}
static void block_until_done(const SP_Device* d, SP_Stream st, TF_Status* s) {}
static void synchronize(const SP_Device* d, TF_Status* s) {}
static void mem_zero(const SP_Device* d, SP_Stream stream,
                     SP_DeviceMemoryBase* at, uint64_t size, TF_Status* s) {
  memset(at->opaque, 0, size);
}
static void mem_set(const SP_Device* d, SP_Stream stream,
                    SP_DeviceMemoryBase* at, uint8_t pattern, uint64_t size,
                    TF_Status* s) {
  memset(at->opaque, pattern, size);
}
static void mem_set32(const SP_Device* d, SP_Stream stream,
                      SP_DeviceMemoryBase* at, uint32_t pattern, uint64_t size,
                      TF_Status* s) {
  for (uint64_t i = 0; i < size / 4; ++i) ((uint32_t*)at->opaque)[i] = pattern;
}
static TF_Bool host_callback(const SP_Device* d, SP_Stream stream,
                             SE_StatusCallbackFn function, void* argument) {
  return 0;
}

static void create_stream_executor(const SP_Platform* p,
                                   SE_CreateStreamExecutorParams* params,
                                   TF_Status* s) {
  SP_StreamExecutor* e = params->stream_executor;
  e->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  e->allocate = allocate;
  e->deallocate = deallocate;
  e->host_memory_allocate = host_allocate;
  e->host_memory_deallocate = host_deallocate;
  e->get_allocator_stats = get_allocator_stats;
  e->device_memory_usage = device_memory_usage;
  e->create_stream = create_stream;
  e->destroy_stream = destroy_stream;
  e->create_stream_dependency = stream_dependency;
  e->get_stream_status = stream_status;
  e->create_event = create_event;
  e->destroy_event = destroy_event;
  e->get_event_status = event_status;
  e->record_event = record_event;
  e->wait_for_event = record_event;
  e->create_timer = create_timer;
  e->destroy_timer = destroy_timer;
  e->start_timer = start_timer;
  e->stop_timer = start_timer;
  e->memcpy_dtoh = dtoh;
  e->memcpy_htod = htod;
  e->memcpy_dtod = dtod;
  e->sync_memcpy_dtoh = sync_dtoh;
  e->sync_memcpy_htod = sync_htod;
  e->sync_memcpy_dtod = sync_dtod;
  e->block_host_for_event = block_for_event;
  e->block_host_until_done = block_until_done;
  e->synchronize_all_activity = synchronize;
  e->mem_zero = mem_zero;
  e->memset = mem_set;
  e->memset32 = mem_set32;
  e->host_callback = host_callback;
}
static void destroy_stream_executor(const SP_Platform* p,
                                    SP_StreamExecutor* e) {}
static void destroy_platform(SP_Platform* p) {}
static void destroy_platform_fns(SP_PlatformFns* f) {}

void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* s) {
  SP_Platform* platform = params->platform;
  platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform->name = "PRETEND";
  platform->type = "GPU";
  platform->supports_unified_memory = 0;
  platform->use_bfc_allocator = 1;
  platform->force_memory_growth = 1;
  SP_PlatformFns* fns = params->platform_fns;
  fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  fns->get_device_count = get_device_count;
  fns->create_device = create_device;
  fns->destroy_device = destroy_device;
  fns->create_device_fns = create_device_fns;
  fns->destroy_device_fns = destroy_device_fns;
  fns->create_stream_executor = create_stream_executor;
  fns->destroy_stream_executor = destroy_stream_executor;
  fns->create_timer_fns = create_timer_fns;
  fns->destroy_timer_fns = destroy_timer_fns;
  params->destroy_platform = destroy_platform;
  params->destroy_platform_fns = destroy_platform_fns;
}
void TF_InitKernel(void) {}
