/* A service of eight functions, of which one gives a part of all time to another at a
 * moment of its own choice: moving DUTY PART AFTER
 *
 * It is busy for DUTY thousandths of the time. PART hundredths of its time move AFTER
 * milliseconds, and it then prints when that was, in ns of CLOCK_REALTIME. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned sink;

/* Each is a function of its own on the stack, with work of its own at its end. */
#define WORK(name, factor)                                           \
	static NOINLINE void name(long rounds)                       \
	{                                                            \
		unsigned x = sink;                                   \
		for (long i = 0; i < rounds; i++)                    \
			x = x * factor + 1013904223;                 \
		sink = x;                                            \
	}

WORK(parse, 1664525)
WORK(validate, 22695477)
WORK(lookup, 1103515245)
WORK(price, 134775813)
WORK(render, 214013)
WORK(compress, 69069)
WORK(encrypt, 16843009)
WORK(send_reply, 1140671485)

static void (*const work[])(long) = {parse, validate, lookup, price, render, compress, encrypt, send_reply};
static int share[] = {26, 20, 15, 12, 10, 8, 6, 3}; /* hundredths */
enum { FUNCTIONS = sizeof(share) / sizeof(share[0]) };

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	long duty = atol(argv[1]), part = atol(argv[2]);
	long long change = now(CLOCK_MONOTONIC) + atoll(argv[3]) * 1000000;
	int moved = 0;
	for (;;) {
		long long began = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
		if (!moved && began >= change) {
			moved = 1;
			share[0] -= part;
			share[6] += part;
			printf("%lld\n", now(CLOCK_REALTIME));
			fflush(stdout);
		}
		for (int i = 0; i < FUNCTIONS; i++)
			work[i](share[i] * 2000L);
		used = now(CLOCK_THREAD_CPUTIME_ID) - used;
		long long rest = used * (1000 - duty) / duty;
		struct timespec pause = {rest / 1000000000, rest % 1000000000};
		if (rest > 0)
			nanosleep(&pause, NULL);
	}
}
