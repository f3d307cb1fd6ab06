/* Waits in a way that is chosen: sleep, starve, pingpong, wait, alternate. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *spin(void *unused)
{
	(void)unused;
	for (volatile long n = 0;; n++)
		;
}

static void *answer(void *unused)
{
	char c;
	(void)unused;
	while (read(there[0], &c, 1) == 1)
		if (write(back[1], &c, 1) != 1)
			break;
	return 0;
}

static void nap(long ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	nanosleep(&t, 0);
}

static void busy(long ns)
{
	struct timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "sleep";
	pthread_t threads[3];
	char c = 0;
	if (!strcmp(how, "starve")) { /* four threads on one CPU */
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(0, &one);
		sched_setaffinity(0, sizeof(one), &one);
		for (int i = 0; i < 3; i++)
			pthread_create(&threads[i], 0, spin, 0);
		spin(0);
	}
	if (!strcmp(how, "pingpong")) { /* two threads wait for each other */
		if (pipe(there) || pipe(back))
			return 1;
		pthread_create(&threads[0], 0, answer, 0);
		while (write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1)
			;
	}
	if (!strcmp(how, "wait"))
		for (;;)
			pause();
	if (!strcmp(how, "alternate")) /* so that windows of 20 ms differ from their neighbours */
		for (;;) {
			busy(50000000);
			nap(50000000);
		}
	for (;;)
		nap(50000000);
}
