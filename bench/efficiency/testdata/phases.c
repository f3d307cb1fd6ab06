// A program whose threads do six things, at shares of the CPU time that are others
// in each phase. It logs how much each took.
//
// Within a phase the mix is steady: what is furthest behind its share comes next.
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define CALL INT64_C(300000) // CPU time of a call, about
#define LATE SECOND          // that a call may end after the window it began in
#define NAP (10 * CALL)

enum { KINDS = 6, PHASES = 4, MAX_STEPS = 1000, OPEN = 8, WORDS = 1 << 14 };

static const char *const names[KINDS] = {"parse_records", "sort_runs", "match_pattern", "pack_block", "sum_matrix", "walk_list"};

static const double shares[PHASES][KINDS] = {
	{0.40, 0.20, 0.15, 0.10, 0.08, 0.07},
	{0.15, 0.10, 0.45, 0.10, 0.12, 0.08},
	{0.10, 0.12, 0.10, 0.40, 0.18, 0.10},
	{0.12, 0.30, 0.08, 0.08, 0.12, 0.30},
};

// What each thread works on.
struct data {
	uint64_t x;
	uint32_t words[WORDS], next[WORDS];
	unsigned char text[WORDS], packed[2 * WORDS];
};

#define WORK __attribute__((noinline, noclone)) static uint64_t

static uint64_t draw(uint64_t *x)
{
	*x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *x >> 33;
}

WORK parse_records(struct data *d, int size)
{
	uint64_t sum = 0, number = 0;

	for (int i = 0; i < size; i++) {
		unsigned char c = d->text[i % WORDS];

		if (c % 16 < 10) {
			number = number * 10 + c % 16;
		} else {
			sum += number;
			number = 0;
		}
	}
	return sum;
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

WORK sort_runs(struct data *d, int size)
{
	uint64_t sum = 0;

	for (int done = 0; done < size; done += 16) {
		for (int i = 0; i < 256; i++)
			d->words[i] = draw(&d->x);
		qsort(d->words, 256, sizeof(*d->words), ascending);
		sum += d->words[128];
	}
	return sum;
}

WORK match_pattern(struct data *d, int size)
{
	uint64_t found = 0;

	for (int i = 0; i < size; i++) {
		int at = draw(&d->x) % (WORDS - 8), length = 0;

		while (length < 8 && (d->text[at + length] & 3) == (length & 3))
			length++;
		found += length;
	}
	return found;
}

WORK pack_block(struct data *d, int size)
{
	int out = 0;

	for (int i = 0; i < size; i++) {
		unsigned char c = d->text[i % WORDS];

		if (out > 0 && d->packed[out - 1] == c)
			c ^= 0x80;
		d->packed[out] = c;
		out = (out + 1 + (c > 200)) % (2 * WORDS - 2);
	}
	return d->packed[out / 2];
}

WORK sum_matrix(struct data *d, int size)
{
	uint64_t sum = 0;

	for (int i = 0; i < size; i++)
		sum += (uint64_t)d->words[(i * 128 + i / 128) % WORDS] * d->text[i % WORDS];
	return sum;
}

WORK walk_list(struct data *d, int size)
{
	uint32_t at = 0;

	for (int i = 0; i < size; i++)
		at = d->next[at];
	return at;
}

static uint64_t (*const works[KINDS])(struct data *, int) = {parse_records, sort_runs, match_pattern, pack_block, sum_matrix, walk_list};

// How much a call of each kind does; fixed before the first phase, so that calls count work.
static int sizes[KINDS];

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void fill(struct data *d, uint64_t seed)
{
	d->x = seed;
	for (int i = 0; i < WORDS; i++) {
		d->words[i] = draw(&d->x);
		d->text[i] = draw(&d->x);
		d->next[i] = (i * 5 + 7919) % WORDS; // goes through all of them
	}
}

static volatile uint64_t sink;

static void measure_sizes(struct data *d)
{
	int64_t end = now(CLOCK_MONOTONIC) + SECOND;

	for (int kind = 0; kind < KINDS; kind++)
		sizes[kind] = 1000;
	while (now(CLOCK_MONOTONIC) < end) {
		for (int kind = 0; kind < KINDS; kind++) {
			int64_t began = now(CLOCK_THREAD_CPUTIME_ID);
			double off;

			sink += works[kind](d, sizes[kind]);
			off = (double)CALL / (now(CLOCK_THREAD_CPUTIME_ID) - began + 1);
			sizes[kind] *= off > 1.5 ? 1.5 : off < 0.7 ? 0.7 : off;
			sizes[kind]++;
		}
	}
}

// The phases of a run, and in which of them it is.
static struct {
	int n, at;
	struct {
		int phase;
		double load; // part of the time that is worked
		int64_t end;
	} steps[MAX_STEPS];
} day;

// CPU time of each kind of work, and the calls that were done, by window.
static struct {
	pthread_mutex_t lock; // guards all of it, and day.at
	int64_t window, first, next; // the next to be printed
	struct {
		double ns[KINDS], calls;
	} open[OPEN]; // by number of the window, modulo OPEN
} truth = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Steps are such as 2@0.5x93.250, with spaces between them.
static void parse_day(char *text)
{
	int64_t end = now(CLOCK_REALTIME);
	double seconds;

	for (char *s = strtok(text, " "); s && day.n < MAX_STEPS; s = strtok(NULL, " "), day.n++) {
		if (sscanf(s, "%d@%lfx%lf", &day.steps[day.n].phase, &day.steps[day.n].load, &seconds) != 3) {
			fprintf(stderr, "phases: what is %s?\n", s);
			exit(2);
		}
		end += (int64_t)(seconds * SECOND);
		day.steps[day.n].end = end;
	}
}

// The step of an instant; that it has begun is logged once.
static int step_at(int64_t at)
{
	int step;

	pthread_mutex_lock(&truth.lock);
	while (day.at + 1 < day.n && at >= day.steps[day.at].end) {
		printf("{\"change\":%" PRId64 ",\"phase\":%d}\n", day.steps[day.at].end, day.steps[day.at + 1].phase);
		day.at++;
	}
	step = day.at;
	pthread_mutex_unlock(&truth.lock);
	return step;
}

static void print_window(int64_t number)
{
	int i = number % OPEN;

	if (number * truth.window >= truth.first) { // else it was not whole
		printf("{\"window\":%" PRId64 ",\"ns\":{", number * truth.window);
		for (int kind = 0; kind < KINDS; kind++)
			printf("%s\"%s\":%.0f", kind ? "," : "", names[kind], truth.open[i].ns[kind]);
		printf("},\"done\":%f}\n", truth.open[i].calls);
		fflush(stdout);
	}
	memset(&truth.open[i], 0, sizeof(truth.open[i]));
}

// Adds a call. One across an edge is split in proportion to the time on either side.
static void add(int kind, int64_t began, int64_t ended, int64_t cpu)
{
	pthread_mutex_lock(&truth.lock);
	while ((truth.next + 1) * truth.window + LATE < began)
		print_window(truth.next++);
	for (int64_t number = began / truth.window; number * truth.window < ended; number++) {
		int64_t from = number * truth.window, to = from + truth.window;
		double part = (double)((ended < to ? ended : to) - (began > from ? began : from)) / (ended - began);

		if (number < truth.next)
			continue; // it has been printed: the thread had no CPU for longer than LATE
		truth.open[number % OPEN].ns[kind] += part * cpu;
		truth.open[number % OPEN].calls += part;
	}
	pthread_mutex_unlock(&truth.lock);
}

// The kind of work that is furthest behind its share.
static int behind(const double *wanted, const double *used, double all)
{
	int most = 0;

	for (int i = 1; i < KINDS; i++)
		if (wanted[i] * (all + CALL) - used[i] > wanted[most] * (all + CALL) - used[most])
			most = i;
	return most;
}

static void rest(double ns)
{
	struct timespec t = {(time_t)(ns / SECOND), (long)ns % SECOND};

	nanosleep(&t, NULL);
}

static void *work(void *data)
{
	double used[KINDS] = {0}, all = 0;
	int64_t last = day.steps[day.n - 1].end;
	double owed = 0; // of rest: naps are longer than calls

	for (int step = -1;;) {
		int64_t began = now(CLOCK_REALTIME), cpu = now(CLOCK_THREAD_CPUTIME_ID);
		int at = step_at(began), kind;

		if (began >= last)
			return NULL;
		if (at != step) {
			step = at;
			all = 0;
			memset(used, 0, sizeof(used));
		}
		kind = behind(shares[day.steps[step].phase], used, all);
		sink += works[kind](data, sizes[kind]);
		cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		add(kind, began, now(CLOCK_REALTIME), cpu);
		used[kind] += cpu;
		all += cpu;
		owed += cpu * (1 / day.steps[step].load - 1);
		if (owed > NAP) {
			rest(owed);
			owed = 0;
		}
	}
}

// Told: seconds of a window, threads, and the phases of the run.
int main(int argc, char **argv)
{
	int threads = argc == 4 ? atoi(argv[2]) : 0;
	pthread_t *workers = calloc(threads + 1, sizeof(*workers));
	struct data *data = calloc(threads + 1, sizeof(*data));

	if (threads < 1 || !workers || !data) {
		fprintf(stderr, "usage: phases SECONDS THREADS STEPS\n");
		return 2;
	}
	for (int i = 0; i < threads; i++)
		fill(&data[i], i);
	measure_sizes(&data[0]);
	printf("{\"pid\":%d}\n", getpid());
	fflush(stdout);
	truth.window = (int64_t)(atof(argv[1]) * SECOND);
	truth.first = now(CLOCK_REALTIME);
	truth.next = truth.first / truth.window;
	parse_day(argv[3]);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&workers[i], NULL, work, &data[i]) != 0)
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	return 0;
}
