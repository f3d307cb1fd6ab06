//go:build ignore

/* A service that parses, sorts and formats a little, then waits. argv[1]: parts of
 * a CPU in thousandths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N 400
#define noinline __attribute__((noinline, noclone))

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static noinline void fill(char **words, unsigned seed)
{
	for (int i = 0; i < N; i++) {
		seed = seed * 1103515245 + 12345;
		snprintf(words[i], 24, "order-%u-%d", seed >> 8, i);
	}
}

static noinline void order(char **words) { qsort(words, N, sizeof *words, compare); }

static noinline unsigned digest(char **words)
{
	unsigned sum = 0;
	for (int i = 0; i < N; i++)
		for (char *c = words[i]; *c; c++)
			sum = sum * 31 + (unsigned char)*c;
	return sum;
}

static noinline unsigned serve(char **words, unsigned seed)
{
	fill(words, seed);
	order(words);
	return digest(words);
}

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double share = argc > 1 ? atoi(argv[1]) / 1000.0 : 0.02;
	char *words[N];
	for (int i = 0; i < N; i++)
		words[i] = malloc(24);
	srand(getpid());
	for (unsigned seed = getpid();;) {
		double began = cpu();
		while (cpu() - began < 0.004)
			seed = serve(words, seed);
		double pause = 0.004 / share * (0.5 + rand() / (double)RAND_MAX);
		usleep(pause * 1e6);
	}
}
