/* A service of eight functions, of which the first gives a part of all time to another,
 * and to yet another, at moments of its own choice: moving DUTY PART AFTER...
 *
 * It is busy for DUTY thousandths of the time. PART hundredths of all its time move to
 * the next function AFTER milliseconds, and it then prints when that was, in ns of
 * CLOCK_REALTIME. */
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
	if (argc < 3)
		return 2;
	long duty = atol(argv[1]), part = atol(argv[2]);
	long long start = now(CLOCK_MONOTONIC);
	int moves = 0, at = 0; /* the function that has the part */
	for (;;) {
		long long used = now(CLOCK_THREAD_CPUTIME_ID);
		if (3 + moves < argc && now(CLOCK_MONOTONIC) >= start + atoll(argv[3 + moves]) * 1000000) {
			moves++;
			share[at] -= part;
			at = (at + 1) % FUNCTIONS;
			share[at] += part;
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
