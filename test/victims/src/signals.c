// Half of the work is done in signal handlers: one on the thread's stack, one on an alternate stack.
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { PLAIN = 1, HANDLER, ALTERNATE, NESTED, SITES };

static const char *const stacks[SITES] = {
	"", "main;run;plain", "main;run;on_signal", "main;run;on_alternate", "main;run;on_alternate;nested",
};

static struct burner *current;

FUNCTION void plain(struct burner *b) { burn(b, PLAIN, slice(b) * 8, 11); }

FUNCTION void nested(struct burner *b) { burn(b, NESTED, slice(b) * 3, 13); }

FUNCTION void on_signal(int signal)
{
	(void)signal;
	burn(current, HANDLER, slice(current) * 4, 17);
}

FUNCTION void on_alternate(int signal)
{
	(void)signal;
	burn(current, ALTERNATE, slice(current) * 3, 19);
	nested(current);
	NOT_LAST();
}

FUNCTION void run(struct burner *b)
{
	while (!victim_done()) {
		plain(b);
		raise(SIGUSR1);
		raise(SIGUSR2);
		settle_if_due(b);
	}
	victim_settle(b);
}

int main(int argc, char **argv)
{
	static char stack[64 << 10];
	struct burner b;

	sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, 0);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, 0);
	sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_alternate, .sa_flags = SA_ONSTACK}, 0);
	victim_open("signals", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, 1);
	current = &b;
	run(&b);
	victim_close();
	return 0;
}
