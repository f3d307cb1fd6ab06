// A storm of short processes: forkstorm [seconds] [per second] logs, for each, when it lived and what it burned.
//
// Half of them live 1 ms and burn all of it; half live 60 ms and burn 3 ms of
// it in three parts (more would be more than two CPUs have at 500 a second).
// Every process is a fork and an exec of this file, in another role.
#define _GNU_SOURCE
#include "victim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FLASH = 1, STEADY, SITES };

static const char *const stacks[] = {""};

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

FUNCTION void flash(struct burner *b, uint64_t ticks) { burn(b, FLASH, ticks, 11); }

FUNCTION void steady(struct burner *b, uint64_t ticks) { burn(b, STEADY, ticks, 13); }

// child burns, and reports itself in one write to the parent's output.
static int child(const char *role, uint64_t ticks_per_us, uint64_t forked)
{
	struct burner b = {.gap_ticks = UINT64_MAX, .settle_ticks = UINT64_MAX, .last = counter()};
	uint64_t start = now(CLOCK_MONOTONIC), cpu;
	char line[200];
	int length;

	if (!strcmp(role, "flash"))
		flash(&b, ticks_per_us * 1000);
	else
		for (int i = 0; i < 3; i++) {
			steady(&b, ticks_per_us * 1000);
			usleep(19000);
		}
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	length = snprintf(line, sizeof line,
			  "{\"pid\":%d,\"role\":\"%s\",\"forked\":%" PRIu64 ",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"cpu\":%" PRIu64 "}\n",
			  getpid(), role, forked, start, now(CLOCK_MONOTONIC), cpu);
	return write(1, line, length) != length;
}

static void spawn(const char *self, const char *role, uint64_t ticks_per_us)
{
	char ticks[24], forked[24];

	snprintf(ticks, sizeof ticks, "%" PRIu64, ticks_per_us);
	snprintf(forked, sizeof forked, "%" PRIu64, now(CLOCK_MONOTONIC));
	switch (fork()) {
	case 0:
		execl(self, "forkstorm", "--role", role, ticks, forked, (char *)0);
		_exit(127);
	case -1:
		perror("victim: fork");
	}
}

int main(int argc, char **argv)
{
	double seconds = victim_number(argc, argv, 1, 10), rate = victim_number(argc, argv, 2, 500);
	uint64_t next, spawned = 0, failed = 0;
	struct burner b;
	int status;

	if (argc == 5 && !strcmp(argv[1], "--role"))
		return child(argv[2], strtoull(argv[3], 0, 10), strtoull(argv[4], 0, 10));
	victim_open("forkstorm", stacks, 1, seconds);
	victim_enter(&b, 1);
	next = now(CLOCK_MONOTONIC);
	while (!victim_done()) {
		struct timespec at = {next / 1000000000, next % 1000000000};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
		spawn("/proc/self/exe", spawned++ % 2 ? "steady" : "flash", b.ticks_per_us);
		while (waitpid(-1, &status, WNOHANG) > 0)
			failed += status != 0;
		next += 1e9 / rate;
	}
	while (wait(&status) > 0 || errno == EINTR)
		failed += status != 0;
	printf("{\"end\":%" PRIu64 ",\"spawned\":%" PRIu64 ",\"failed\":%" PRIu64 "}\n", now(CLOCK_MONOTONIC), spawned, failed);
	return failed != 0;
}
