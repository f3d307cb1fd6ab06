// A victim burns CPU in functions of known names and logs how much: this is the clock it does so by.
//
// Truth is CPU time as the kernel accounts it (CLOCK_THREAD_CPUTIME_ID), cut
// by the time stamp counter: reading the first is a system call of 0.2-0.4 us,
// too much for slices of 30 us, and the counter alone also runs while the
// thread is preempted. So:
//
//	burn()     reads the counter every 0.1 us or so. It adds the ticks to its
//	           site, and steps too long to be its own work to the site's gap.
//	settle()   runs after a long gap, every 2 ms, and at slot ends. It compares
//	           the kernel's CPU time with the ticks since it last ran, takes
//	           what the thread did not run off the longest gap first (the
//	           others are interrupts, mostly: CPU time of the thread), and
//	           adds the rest to the log's slot.
//
// What the sites have in a slot thus sums to the kernel's CPU time. Time
// between burns, settling included, belongs to site 0 ("other").
#ifndef VICTIM_H
#define VICTIM_H

#include <stdint.h>

// Without noipa gcc clones, merges and reorders what should stay a function.
#define FUNCTION __attribute__((noipa, noinline))
#define FOREVER UINT64_MAX

enum { OTHER = 0, MAX_SITES = 16 };

// One thread's account. Rust has the same layout in rusty.rs.
struct burner {
	uint64_t last;             // counter at the end of the last burn
	uint64_t due;              // counter at which to settle
	uint64_t gap_ticks;        // a longer step between two readings is a gap
	uint64_t settle_ticks;     // a site with a longer gap settles at once
	uint64_t ticks_per_us;
	uint64_t ticks[MAX_SITES]; // since last settled
	uint64_t gaps[MAX_SITES];
	uint64_t longest, longest_site; // of the gaps
	uint64_t random;
	uint64_t settled_tsc, settled_mono, settled_cpu;
};

// victim_open prints the ready line and prepares the log. stacks[i] names the
// functions on the stack of site i, root first, joined by ';'.
#ifdef __cplusplus
extern "C" {
#endif
void victim_open(const char *name, const char *const *stacks, int sites, double seconds);
void victim_enter(struct burner *b, uint64_t seed); // on the thread that burns
void victim_settle(struct burner *b);
int victim_done(void);   // time is up, or SIGTERM came
void victim_close(void); // prints the log
double victim_number(int argc, char **argv, int i, double otherwise);
#ifdef __cplusplus
}
#endif

static inline __attribute__((always_inline)) uint64_t counter(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

static inline __attribute__((always_inline)) void step(struct burner *b, int site, uint64_t from, uint64_t to)
{
	if (to - from > b->gap_ticks) {
		b->gaps[site] += to - from;
		if (to - from > b->longest) {
			b->longest = to - from;
			b->longest_site = site;
		}
	}
}

// burn spins in the function it is inlined into, for so many ticks of the
// counter (of time that passes, not of CPU time: the log says what that was).
// It calls nothing. salt keeps the bodies of functions distinct.
static inline __attribute__((always_inline)) void burn(struct burner *b, int site, uint64_t ticks, uint64_t salt)
{
	uint64_t from = counter(), now, last = from, x = salt;

	b->ticks[OTHER] += from - b->last;
	step(b, OTHER, b->last, from);
	do {
		for (int i = 0; i < 40; i++) {
			x = x * 6364136223846793005u + salt;
			__asm__ volatile("" : "+r"(x));
		}
		now = counter();
		step(b, site, last, now);
		last = now;
	} while (now - from < ticks);
	b->ticks[site] += now - from;
	b->last = now;
}

static inline __attribute__((always_inline)) void settle_if_due(struct burner *b)
{
	if (b->longest > b->settle_ticks || b->last >= b->due)
		victim_settle(b);
}

static inline __attribute__((always_inline)) uint64_t draw(struct burner *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random * 2685821657736338717u >> 11;
}

// slice draws a length between 5 and 55 us: far below any sampling period, so
// that samples fall into functions independently.
static inline __attribute__((always_inline)) uint64_t slice(struct burner *b)
{
	return b->ticks_per_us * 5 + draw(b) % (b->ticks_per_us * 50);
}

// Keeps a call in front of it from becoming a jump.
#define NOT_LAST() __asm__ volatile("" ::: "memory")

#endif
