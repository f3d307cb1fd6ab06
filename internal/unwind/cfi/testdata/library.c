// Spends its time inside the C library, in two threads.
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile double sink;

static __attribute__((noinline)) int compare(const void *a, const void *b) {
	char x[32], y[32];
	snprintf(x, sizeof x, "%d", *(const int *)a);
	snprintf(y, sizeof y, "%d", *(const int *)b);
	return strcmp(x, y);
}

static __attribute__((noinline)) void print(FILE *out, int i) {
	fprintf(out, "%d %s %08x %Lg %.17g\n", i, "text", i * 7, (long double)i / 3, i / 7.0);
}

static __attribute__((noinline)) void memory(void) {
	char *p[64];
	for (int i = 0; i < 64; i++) p[i] = memset(malloc(1 + i * 97), i, 1 + i * 97);
	for (int i = 0; i < 64; i += 2) p[i] = realloc(p[i], 40000);
	for (int i = 0; i < 64; i++) free(p[i]);
}

static __attribute__((noinline)) void strings(void) {
	char a[600], b[600];
	memset(a, 'x', 599);
	a[599] = 0;
	memcpy(b, a, 600);
	memmove(b + 1, b, 500);
	sink += strlen(a) + strcmp(a, b) + (strstr(a, "xxy") != 0) + (strchr(a, 'y') != 0);
	sink += strtod("3.14159265358979323846", 0) + strtol("123456789", 0, 10);
	char *save;
	for (char *t = strtok_r(strcpy(b, "a b c d e f"), " ", &save); t; t = strtok_r(0, " ", &save)) sink += *t;
}

static __attribute__((noinline)) void pattern(void) {
	regex_t r;
	regcomp(&r, "(a|b)*[0-9]+x?$", REG_EXTENDED);
	sink += regexec(&r, "ababababab1234567x", 0, 0, 0);
	regfree(&r);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *arg) {
	FILE *out = fopen("/dev/null", "w");
	int v[64];
	for (int n = 0;; n++) {
		for (int i = 0; i < 64; i++) v[i] = i * 7919 % 64;
		qsort(v, 64, sizeof v[0], compare);
		for (int i = 0; i < 10; i++) print(out, i);
		memory();
		strings();
		pattern();
		pthread_mutex_lock(&lock);
		sink += sin(n) + pow(n, 1.5) + exp(n % 10);
		pthread_mutex_unlock(&lock);
		struct timespec pause = {0, 1000};
		if (n % 16 == 0) nanosleep(&pause, 0);
	}
}

int main(void) {
	pthread_t t;
	pthread_create(&t, 0, work, 0);
	work(0);
}
