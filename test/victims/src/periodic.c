// A cycle locked to the clock: a fixed part of every PERIOD_US in `first`, the rest in `second`.
//
// With SLEEP the cycle begins at a multiple of the period since boot, as what
// timers wake does, burns a fifth in each function, and sleeps.
#include "victim.h"

#include <time.h>

enum { FIRST = 1, SECOND, SITES };

static const char *const stacks[SITES] = {"", "main;run;first", "main;run;second"};

FUNCTION void first(struct burner *b, uint64_t ticks) { burn(b, FIRST, ticks, 11); }

FUNCTION void second(struct burner *b, uint64_t ticks) { burn(b, SECOND, ticks, 13); }

// until runs one function up to an instant, in pieces short enough for the
// log's slots.
static inline __attribute__((always_inline)) void until(struct burner *b, void (*f)(struct burner *, uint64_t), uint64_t end)
{
	uint64_t piece = b->ticks_per_us * 100, at;

	while ((at = counter()) < end) {
		f(b, end - at < piece ? end - at : piece);
		settle_if_due(b);
	}
}

// begin gives the counter's value at which the next cycle starts.
static uint64_t begin(struct burner *b, uint64_t last, uint64_t period)
{
#ifdef SLEEP
	struct timespec t;
	uint64_t us;

	(void)last;
	(void)period;
	clock_gettime(CLOCK_MONOTONIC, &t);
	us = (t.tv_sec * 1000000ull + t.tv_nsec / 1000) / PERIOD_US * PERIOD_US + PERIOD_US;
	t = (struct timespec){us / 1000000, us % 1000000 * 1000};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
	victim_settle(b);
	return counter();
#else
	uint64_t now = counter();

	(void)b;
	return now - (now - last) % period; // keeps the phase when cycles were missed
#endif
}

FUNCTION void run(struct burner *b)
{
	uint64_t period = b->ticks_per_us * PERIOD_US, start = b->last;

	while (!victim_done()) {
		start = begin(b, start, period);
#ifdef SLEEP
		until(b, first, start + period / 5);
		until(b, second, start + period / 5 * 2);
#else
		until(b, first, start + period / 10 * 3);
		until(b, second, start + period);
#endif
	}
	victim_settle(b);
}

int main(int argc, char **argv)
{
	struct burner b;

	victim_open(NAME, stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, 1);
	run(&b);
	victim_close();
	return 0;
}
