// Two threads (or the second argument) do a fixed amount of work 25 frames deep: their run time tells what profiling costs.
//
// The first argument is the amount, in units of about a millisecond. Nothing
// reads a clock while the work is done. Each thread's time is printed.
#define _GNU_SOURCE
#include "victim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// Frames: clone3, start_thread, work, f01..f21, leaf.
FUNCTION uint64_t leaf(uint64_t units)
{
	uint64_t x = units;

	for (uint64_t i = 0; i < units * 1000000; i++) {
		x = x * 6364136223846793005u + 11;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

#define FRAME(name, n, next) \
	FUNCTION uint64_t name(uint64_t units) \
	{ \
		volatile uint64_t pad[n % 5 + 1]; \
		pad[0] = next(units); \
		return pad[0] + n; \
	}

// clang-format off
FRAME(f21, 21, leaf) FRAME(f20, 20, f21) FRAME(f19, 19, f20) FRAME(f18, 18, f19) FRAME(f17, 17, f18)
FRAME(f16, 16, f17) FRAME(f15, 15, f16) FRAME(f14, 14, f15) FRAME(f13, 13, f14) FRAME(f12, 12, f13)
FRAME(f11, 11, f12) FRAME(f10, 10, f11) FRAME(f09, 9, f10) FRAME(f08, 8, f09) FRAME(f07, 7, f08)
FRAME(f06, 6, f07) FRAME(f05, 5, f06) FRAME(f04, 4, f05) FRAME(f03, 3, f04) FRAME(f02, 2, f03) FRAME(f01, 1, f02)
// clang-format on

struct job {
	pthread_t thread;
	uint64_t units, result;
	double wall, cpu;
};

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

FUNCTION void *work(void *argument)
{
	struct job *job = argument;
	double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);

	job->result = f01(job->units);
	job->cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
	job->wall = seconds(CLOCK_MONOTONIC) - wall;
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t units = victim_number(argc, argv, 1, 1000);
	int n = victim_number(argc, argv, 2, 2);
	struct job *jobs = calloc(n, sizeof *jobs);

	printf("{\"victim\":\"burn25\",\"pid\":%d,\"units\":%llu}\n", getpid(), (unsigned long long)units);
	fflush(stdout);
	for (int i = 0; i < n; i++) {
		jobs[i].units = units;
		pthread_create(&jobs[i].thread, 0, work, &jobs[i]);
	}
	for (int i = 0; i < n; i++) {
		pthread_join(jobs[i].thread, 0);
		printf("{\"thread\":%d,\"wall\":%.6f,\"cpu\":%.6f}\n", i, jobs[i].wall, jobs[i].cpu);
	}
	return 0;
}
