// The log of a victim, and the settling of its accounts; victim.h says how.
#define _GNU_SOURCE
#include "victim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define SLOT UINT64_C(10000000) // 10 ms: divides every window length worth asking for

// A sampling interrupt takes 5-30 us and is CPU time of the thread; to be
// switched out and back takes no less. Both show up as gaps, settling tells
// them apart.
enum { GAP_US = 3, SETTLE_GAP_US = 25, SETTLE_US = 2000 };

static struct {
	uint64_t base;   // monotonic time of slot 0, a multiple of SLOT
	uint64_t slots;
	uint64_t end;    // monotonic time at which to stop
	uint64_t *ns;    // [slots][sites]
	int sites;
	uint64_t ticks_per_us;
	uint64_t settled; // how often
	uint64_t set_up;  // CPU time of the process before a thread began to burn
} truth;

static volatile sig_atomic_t stopped;

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void on_stop(int signal)
{
	(void)signal;
	stopped = 1;
}

// Counter ticks in a microsecond, for lengths and thresholds only: settling
// measures the ratio anew each time.
static uint64_t ticks_per_us(void)
{
	uint64_t tsc = counter(), mono = now(CLOCK_MONOTONIC), passed;

	do
		passed = now(CLOCK_MONOTONIC) - mono;
	while (passed < 5000000);
	return (counter() - tsc) * 1000 / passed;
}

double victim_number(int argc, char **argv, int i, double otherwise)
{
	return argc > i ? atof(argv[i]) : otherwise;
}

void victim_open(const char *name, const char *const *stacks, int sites, double seconds)
{
	struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
	uint64_t start;

	sigaction(SIGTERM, &action, 0);
	sigaction(SIGINT, &action, 0);
	truth.ticks_per_us = ticks_per_us();
	start = now(CLOCK_MONOTONIC);
	truth.base = start - start % SLOT;
	truth.end = start + (uint64_t)(seconds * SECOND);
	truth.sites = sites;
	truth.slots = (truth.end - truth.base) / SLOT + 1000; // 10 s for those that are kept from stopping
	truth.ns = mmap(0, truth.slots * sites * sizeof *truth.ns, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (truth.ns == MAP_FAILED || sites > MAX_SITES) {
		perror("victim: log");
		exit(1);
	}
	printf("{\"victim\":\"%s\",\"pid\":%d,\"slot\":%" PRIu64 ",\"start\":%" PRIu64 ",\"stacks\":[", name, getpid(), SLOT, start);
	for (int i = 0; i < sites; i++)
		printf("%s\"%s\"", i ? "," : "", stacks[i]);
	printf("]}\n");
	fflush(stdout);
}

void victim_enter(struct burner *b, uint64_t seed)
{
	*b = (struct burner){
		.ticks_per_us = truth.ticks_per_us,
		.gap_ticks = truth.ticks_per_us * GAP_US,
		.settle_ticks = truth.ticks_per_us * SETTLE_GAP_US,
		.random = seed * 0x9e3779b97f4a7c15u + 1,
	};
	if (!__atomic_load_n(&truth.set_up, __ATOMIC_RELAXED))
		__atomic_store_n(&truth.set_up, now(CLOCK_PROCESS_CPUTIME_ID), __ATOMIC_RELAXED);
	b->settled_cpu = now(CLOCK_THREAD_CPUTIME_ID);
	b->settled_mono = now(CLOCK_MONOTONIC);
	b->settled_tsc = b->last = counter();
	b->due = 0; // settle soon: due is aligned to slots there
}

int victim_done(void)
{
	return stopped || now(CLOCK_MONOTONIC) >= truth.end;
}

// credit spreads the CPU time of one settling interval over its sites.
static void credit(struct burner *b, double cpu, double passed, uint64_t tsc)
{
	uint64_t slot = (b->settled_mono - truth.base) / SLOT;
	double ns_per_tick = passed / (tsc - b->settled_tsc);
	double off = passed > cpu ? passed - cpu : 0; // was not running
	double longest = b->longest * ns_per_tick, gaps = -longest, ran = 0, share[MAX_SITES];

	if (slot >= truth.slots)
		slot = truth.slots - 1;
	for (int i = 0; i < truth.sites; i++) {
		gaps += b->gaps[i] * ns_per_tick;
		share[i] = b->ticks[i] * ns_per_tick;
	}
	if (longest > 0) {
		double take = off < longest ? off : longest;

		share[b->longest_site] -= take;
		off -= take;
	}
	for (int i = 0; i < truth.sites; i++) {
		double gap = b->gaps[i] * ns_per_tick - (b->longest && i == (int)b->longest_site ? longest : 0);

		if (gaps > 0)
			share[i] -= (off < gaps ? off / gaps : 1) * gap;
		ran += share[i];
	}
	// What remains, from steps too short to be gaps, comes off everywhere.
	for (int i = 0; i < truth.sites && ran > 0; i++)
		__atomic_fetch_add(&truth.ns[slot * truth.sites + i], (uint64_t)(share[i] * cpu / ran), __ATOMIC_RELAXED);
}

void victim_settle(struct burner *b)
{
	// A switch between these readings falls into this interval on all
	// three clocks, or into none: it shows up as a gap of OTHER.
	uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), mono = now(CLOCK_MONOTONIC), tsc = counter(), next;

	b->ticks[OTHER] += tsc - b->last;
	step(b, OTHER, b->last, tsc);
	credit(b, cpu - b->settled_cpu, mono - b->settled_mono, tsc);
	__atomic_fetch_add(&truth.settled, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < truth.sites; i++)
		b->ticks[i] = b->gaps[i] = 0;
	b->longest = 0;
	b->settled_cpu = cpu;
	b->settled_mono = mono;
	b->settled_tsc = b->last = tsc;
	next = SLOT - (mono - truth.base) % SLOT; // ns to the slot's end
	if (next > SETTLE_US * 1000)
		next = SETTLE_US * 1000;
	b->due = tsc + next * b->ticks_per_us / 1000;
}

void victim_close(void)
{
	uint64_t sum = 0, burned = now(CLOCK_PROCESS_CPUTIME_ID), end;

	for (uint64_t s = 0; s < truth.slots; s++) {
		uint64_t *ns = &truth.ns[s * truth.sites], any = 0;

		for (int i = 0; i < truth.sites; i++)
			any += ns[i];
		if (!any)
			continue;
		sum += any;
		printf("{\"at\":%" PRIu64 ",\"ns\":[", truth.base + s * SLOT);
		for (int i = 0; i < truth.sites; i++)
			printf("%s%" PRIu64, i ? "," : "", ns[i]);
		printf("]}\n");
	}
	end = now(CLOCK_PROCESS_CPUTIME_ID);
	printf("{\"end\":%" PRIu64 ",\"accounted\":%" PRIu64 ",\"outside\":%" PRIu64 ",\"cpu\":%" PRIu64 ",\"settled\":%" PRIu64 "}\n",
	       now(CLOCK_MONOTONIC), sum, truth.set_up + end - burned, end, truth.settled);
	fflush(stdout);
}
