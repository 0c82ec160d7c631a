// Runs the text of CUDA kernels on a CPU, to check it: blocks one after the other, the threads of a block as fibers that change at
// barriers, in ascending or descending order. It stops at a barrier that not all threads reach, and at a race: two accesses to one
// element by different threads, one of them a write, with no barrier between. What is out of bounds is the sanitizers' part: every
// buffer, shared memory too, is an allocation of just its size. Not modelled: occupancy, launch limits, streams.
#ifndef DSLC_CUDA_HOST_H
#define DSLC_CUDA_HOST_H
#define K_HOST
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>
#include <ucontext.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define K_UNROLL
#define K_SEEN(POINTER, COUNT, WRITTEN) k_host::seen((POINTER), sizeof(*(POINTER)), (COUNT), (WRITTEN))
#define K_SHARED(T, NAME, COUNT) static char NAME##_site; T* const NAME = (T*)k_host::shared(&NAME##_site, sizeof(T) * (COUNT))
struct dim3 { unsigned x = 1, y = 1, z = 1; };
static dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace k_host {
enum Code { kRace = 40, kBarrier = 41, kRequest = 42 };
[[noreturn]] static void stop(Code code, const char* text) {
  std::fprintf(stderr, "%s: thread %u of block %u\n", text, threadIdx.x, blockIdx.x);
  std::exit(code);
}
// ---- threads ----------------------------------------------------------------------------------------------------------------
enum State { kReady, kAtBlock, kAtWarp, kAtShuffle, kDone };
struct Thread { ucontext_t context; char* stack = nullptr; dim3 index; State state = kDone; int64_t met = 0, warp_met = 0; };
static ucontext_t scheduler;
static std::vector<Thread> threads;
static Thread* current = nullptr;
static Thread lone;  // of a launch without fibers
static bool fibers = false, reversed = false;
static void (*entry)(void*) = nullptr;
static void* argument = nullptr;

static void wait(State state) {
  if (!fibers) stop(kBarrier, "a barrier in a launch whose threads are on their own");
  Thread* me = current;
  me->state = state;
  swapcontext(&me->context, &scheduler);
}
static void run() {
  entry(argument);
  current->state = kDone;
  swapcontext(&current->context, &scheduler);
}
static void release(State from, size_t first, size_t last) {
  for (size_t i = first; i < last; i++)
    if (threads[i].state == from) {
      threads[i].state = kReady;
      if (from != kAtShuffle) threads[i].warp_met++;  // a shuffle orders no memory
      if (from == kAtBlock) threads[i].met++;
    }
}
static bool all(State state, size_t first, size_t last) {
  for (size_t i = first; i < last; i++) if (threads[i].state != state) return false;
  return true;
}
static void run_block(size_t count) {
  for (;;) {
    bool ran = false;
    for (size_t k = 0; k < count; k++) {
      Thread& t = threads[reversed ? count - 1 - k : k];
      if (t.state != kReady) continue;
      ran = true;
      current = &t;
      threadIdx = t.index;
      swapcontext(&scheduler, &t.context);
    }
    if (all(kDone, 0, count)) return;
    bool freed = false;
    for (size_t first = 0; first < count; first += 32) {
      const size_t last = first + 32 < count ? first + 32 : count;
      for (State at : {kAtWarp, kAtShuffle})
        if (all(at, first, last)) { release(at, first, last); freed = true; }
    }
    if (!freed && all(kAtBlock, 0, count)) { release(kAtBlock, 0, count); freed = true; }
    if (!freed && !ran) stop(kBarrier, "a barrier that not all threads reach");
  }
}
// ---- memory -----------------------------------------------------------------------------------------------------------------
struct Access { int64_t block = -1, met = 0, warp_met = 0; unsigned thread = 0; };
struct Element { Access writer, readers[2]; };
struct Region { const char *first, *last; std::vector<Element> elements; };
static std::vector<Region> regions;
static size_t found_last = 0;
static void watch(const void* memory, size_t bytes) {
  regions.push_back({(const char*)memory, (const char*)memory + bytes, std::vector<Element>(bytes)});
}
static Access here() {
  const Thread& me = fibers ? *current : lone;
  return {(int64_t)blockIdx.x + (int64_t)gridDim.x * (blockIdx.y + (int64_t)gridDim.y * blockIdx.z), me.met, me.warp_met, threadIdx.x};
}
static bool apart(const Access& a, const Access& b) {
  if (a.block < 0 || (a.block == b.block && a.thread == b.thread)) return false;
  if (a.block != b.block) return true;
  return !(b.met > a.met || (a.thread / 32 == b.thread / 32 && b.warp_met > a.warp_met));
}
static Region* region_of(const char* p) {
  if (found_last < regions.size() && p >= regions[found_last].first && p < regions[found_last].last) return &regions[found_last];
  for (size_t k = 0; k < regions.size(); k++)
    if (p >= regions[k].first && p < regions[k].last) { found_last = k; return &regions[k]; }
  return nullptr;
}
static void seen(const void* pointer, size_t size, int count, bool written) {
  const Access now = here();
  for (int i = 0; i < count; i++) {
    const char* p = (const char*)pointer + i * size;
    Region* region = region_of(p);
    if (!region) continue;
    Element& e = region->elements[p - region->first];
    if (apart(e.writer, now) || (written && (apart(e.readers[0], now) || apart(e.readers[1], now))))
      stop(kRace, written ? "a race: written while another thread uses it" : "a race: read while another thread writes it");
    if (written) e.writer = now;
    else {
      if (e.readers[0].block != now.block || e.readers[0].thread != now.thread) e.readers[1] = e.readers[0];
      e.readers[0] = now;
    }
  }
}
struct Site { const void* site; char* memory; };
static std::vector<Site> sites;
static void* shared(const void* site, size_t bytes) {
  for (const Site& each : sites) if (each.site == site) return each.memory;
  char* memory = (char*)std::malloc(bytes);
  std::memset(memory, 0xff, bytes);  // NaN, so that what is read before it is written shows
  sites.push_back({site, memory});
  watch(memory, bytes);
  return memory;
}
// ---- launches ---------------------------------------------------------------------------------------------------------------
static void launch(dim3 grid, dim3 block, bool with_fibers, void (*f)(void*), void* user) {
  gridDim = grid; blockDim = block; fibers = with_fibers; entry = f; argument = user;
  const size_t count = (size_t)block.x * block.y * block.z;
  if (count == 0 || count > 1024) stop(kRequest, "a block of no threads or too many");
  if (threads.size() < count && with_fibers) threads.resize(count);
  const size_t stack = 256 << 10;
  for (unsigned z = 0; z < grid.z; z++) for (unsigned y = 0; y < grid.y; y++) for (unsigned x = 0; x < grid.x; x++) {
    blockIdx = {x, y, z};
    const size_t kept = regions.size();
    for (size_t k = 0; k < count; k++) {
      const size_t i = reversed ? count - 1 - k : k;
      const dim3 index{(unsigned)(i % block.x), (unsigned)(i / block.x % block.y), (unsigned)(i / block.x / block.y)};
      if (!with_fibers) { threadIdx = index; f(user); continue; }
      Thread& t = threads[i];
      t.index = index; t.state = kReady; t.met = t.warp_met = 0;
      if (!t.stack) t.stack = (char*)std::malloc(stack);
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = t.stack; t.context.uc_stack.ss_size = stack; t.context.uc_link = &scheduler;
      makecontext(&t.context, run, 0);
    }
    if (with_fibers) run_block(count);
    for (const Site& each : sites) std::free(each.memory);
    sites.clear();
    regions.resize(kept);
    found_last = 0;
  }
}
// ---- shuffles: every lane gives its value, meets the others, and takes one ------------------------------------------------------
static uint64_t given[1024];
template <class T> T shuffle(T value, unsigned mask) {
  const unsigned me = threadIdx.x;
  std::memcpy(&given[me], &value, sizeof(T));
  wait(kAtShuffle);
  T out;
  std::memcpy(&out, &given[me ^ mask], sizeof(T));
  wait(kAtShuffle);
  return out;
}
// ---- what the lanes of a warp have, seen by all of them until they have met again ---------------------------------------------------
static char shown[2][1024][32];
template <class T> struct Gathered {
  const char (*first)[32];
  T operator[](int lane) const { T out; std::memcpy(&out, first[lane], sizeof(T)); return out; }
};
template <class T> Gathered<T> gathered(int what, const T& value) {
  std::memcpy(shown[what][threadIdx.x], &value, sizeof(T));
  wait(kAtShuffle);
  return {&shown[what][threadIdx.x / 32 * 32]};
}
static void met() { wait(kAtShuffle); }
static void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
}  // namespace k_host
#define __syncthreads() k_host::wait(k_host::kAtBlock)
#define __syncwarp(...) k_host::wait(k_host::kAtWarp)
#define __shfl_xor_sync(lanes, value, mask) k_host::shuffle((value), (mask))
static inline float __uint_as_float(uint32_t b) { float f; std::memcpy(&f, &b, 4); return f; }
static inline uint32_t __float_as_uint(float f) { uint32_t b; std::memcpy(&b, &f, 4); return b; }
#endif
