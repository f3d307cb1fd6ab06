/* A process whose threads stand at known places; see dump_test.go. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile long sink;
static int pipes[2];

static void name(const char *n) { pthread_setname_np(pthread_self(), n); }

NOINLINE static void wait_for_lock(void)
{
	pthread_mutex_lock(&held);
	sink++;
}

NOINLINE static void wait_for_byte(void)
{
	char c;
	sink += read(pipes[0], &c, 1);
}

/* Each level takes 8 KB of stack: the whole is more than one look holds. */
NOINLINE static void descend(int levels)
{
	volatile char block[8192];
	memset((void *)block, levels, sizeof(block));
	if (levels > 0)
		descend(levels - 1);
	else
		pause();
	sink += block[levels];
}

NOINLINE static void on_signal(int number)
{
	sink += number;
	pause();
	sink++;
}

/* The handler runs on a stack of its own, far from the thread's. */
NOINLINE static void get_signal(void)
{
	static char stack[1 << 16];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	sigaltstack(&alternate, 0);
	sigaction(SIGUSR1, &action, 0);
	pthread_kill(pthread_self(), SIGUSR1);
	sink++;
}

NOINLINE static void spin(void)
{
	for (;;)
		sink++;
}

/* The parent of a vfork cannot be interrupted until its child is through. */
NOINLINE static void wait_for_child(void)
{
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	sink++;
}

#define THREAD(function, call) \
	static void *function##_thread(void *unused) \
	{ \
		name(#function); \
		call; \
		sink++; \
		return unused; \
	}

THREAD(locked, wait_for_lock())
THREAD(reading, wait_for_byte())
THREAD(deep, descend(60))
THREAD(signalled, get_signal())
THREAD(spinning, spin())
THREAD(blocked, wait_for_child())

int main(void)
{
	pthread_t t;
	void *(*threads[])(void *) = {locked_thread, reading_thread, deep_thread, signalled_thread, spinning_thread, blocked_thread};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_mutex_lock(&held);
	if (pipe(pipes))
		return 1;
	for (unsigned i = 0; i < sizeof(threads) / sizeof(*threads); i++)
		pthread_create(&t, 0, threads[i], 0);
	usleep(200 * 1000); /* until they all stand where they are going to */
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
