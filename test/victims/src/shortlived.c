// Tasks that run shortly: shortlived [seconds] [mode] [run ms] [pause ms] [threads] burns so much on each of them, again and again.
//
//	threads   starts a thread, joins it, pauses
//	processes forks and execs this file, waits for it, pauses
//	pool      so many threads that live as long as it does, each runs and pauses
//	busy      one thread that never pauses
//
// Runs and pauses vary by a fifth, so that nothing is in step. It keeps no truth of
// its own: what it used the kernel tells.
#define _GNU_SOURCE
#include "victim.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const stacks[] = {""};
static double run_ns, pause_ns;
static atomic_ullong runs;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static double vary(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return 0.8 + 0.4 * (*random >> 40) / (1 << 24);
}

FUNCTION void spin(double ns)
{
	double until = now(CLOCK_THREAD_CPUTIME_ID) + ns;
	uint64_t x = 1;

	while (now(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 300; i++) {
			x = x * 6364136223846793005u + 13;
			__asm__ volatile("" : "+r"(x));
		}
}

static void rest(double ns)
{
	struct timespec t = {ns / 1e9, (long)ns % 1000000000};

	if (ns >= 1)
		nanosleep(&t, 0);
}

static void *once(void *ns)
{
	spin(*(double *)ns);
	return 0;
}

static void *member(void *number)
{
	uint64_t random = (uint64_t)number * 7919;

	rest(pause_ns * vary(&random) * ((uint64_t)number % 16) / 16);
	do {
		spin(run_ns * vary(&random));
		atomic_fetch_add(&runs, 1);
		rest(pause_ns * vary(&random));
	} while (!victim_done());
	return 0;
}

static void *start(pthread_t *thread, void *(*routine)(void *), void *argument)
{
	int failed = pthread_create(thread, 0, routine, argument);

	if (failed) {
		fprintf(stderr, "victim: thread: %s\n", strerror(failed));
		exit(1);
	}
	return 0;
}

static void one_thread(double ns)
{
	pthread_t thread;

	start(&thread, once, &ns);
	pthread_join(thread, 0);
}

static void one_process(double ns)
{
	char text[32];
	int status;
	pid_t child;

	snprintf(text, sizeof text, "%.0f", ns);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", "shortlived", "--burn", text, (char *)0);
		_exit(127);
	}
	if (child < 0) {
		perror("victim: fork");
		exit(1);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
}

static void pool(uint64_t size)
{
	pthread_t *threads = calloc(size, sizeof *threads);

	for (uint64_t i = 0; i < size; i++)
		start(&threads[i], member, (void *)(i + 1));
	for (uint64_t i = 0; i < size; i++)
		pthread_join(threads[i], 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "threads";
	uint64_t random = getpid();

	if (argc == 3 && !strcmp(argv[1], "--burn")) {
		spin(atof(argv[2]));
		return 0;
	}
	run_ns = victim_number(argc, argv, 3, 5) * 1e6;
	pause_ns = victim_number(argc, argv, 4, 5) * 1e6;
	victim_open("shortlived", stacks, 1, victim_number(argc, argv, 1, 10));
	if (!strcmp(mode, "pool")) {
		pool(victim_number(argc, argv, 5, 64));
	} else {
		do {
			double ns = run_ns * vary(&random);

			if (!strcmp(mode, "threads"))
				one_thread(ns);
			else if (!strcmp(mode, "processes"))
				one_process(ns);
			else
				spin(ns);
			atomic_fetch_add(&runs, 1);
			if (strcmp(mode, "busy"))
				rest(pause_ns * vary(&random));
		} while (!victim_done());
	}
	printf("{\"end\":%.0f,\"runs\":%llu}\n", now(CLOCK_MONOTONIC), (unsigned long long)runs);
	return 0;
}
