// Threads, recursion, callbacks, signals and a realigned stack.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile long sink;

static __attribute__((noinline)) long recurse(int n) {
	volatile char pad[40];
	pad[0] = (char)n;
	long r = n ? recurse(n - 1) : 0;
	return r + pad[0];
}

static int compare(const void *a, const void *b) {
	sink += recurse(5);
	return *(const int *)a - *(const int *)b;
}

static void handler(int sig) {
	for (int i = 0; i < 50; i++) sink += recurse(10);
}

static __attribute__((noinline)) long aligned(int n) {
	__attribute__((aligned(64))) volatile char buf[64];
	volatile char *dyn = __builtin_alloca(n);
	dyn[0] = buf[0] = 1;
	return recurse(n % 20) + dyn[0] + buf[0];
}

static void *work(void *arg) {
	int v[50];
	for (;;) {
		for (int i = 0; i < 50; i++) v[i] = i * 7919 % 50;
		qsort(v, 50, sizeof v[0], compare);
		sink += aligned(30);
		raise(SIGUSR1);
		free(memset(malloc(100), 0, 100));
	}
	return 0;
}

int main(void) {
	signal(SIGUSR1, handler);
	pthread_t t;
	pthread_create(&t, 0, work, 0);
	work(0);
}
