// Many threads (50, or the third argument), each with its own mix of five functions.
#include "victim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACCEPT = 1, DECODE, LOOKUP, ENCODE, SEND, SITES };

static const char *const stacks[SITES] = {
	"", "worker;accept_one", "worker;decode", "worker;decode;lookup", "worker;encode", "worker;send_one",
};

FUNCTION void accept_one(struct burner *b) { burn(b, ACCEPT, slice(b), 11); }

FUNCTION void lookup(struct burner *b) { burn(b, LOOKUP, slice(b), 13); }

FUNCTION void decode(struct burner *b)
{
	burn(b, DECODE, slice(b), 17);
	lookup(b);
	NOT_LAST();
}

FUNCTION void encode(struct burner *b) { burn(b, ENCODE, slice(b), 19); }

FUNCTION void send_one(struct burner *b) { burn(b, SEND, slice(b), 23); }

FUNCTION void *worker(void *number)
{
	uint64_t n = (uint64_t)number;
	struct burner b;

	victim_enter(&b, n + 1);
	while (!victim_done())
		for (int i = 0; i < 100; i++) {
			switch ((draw(&b) % 8 + n % 3) % 8) {
			case 0:
				accept_one(&b);
				break;
			case 1: case 2: case 3:
				decode(&b);
				break;
			case 4: case 5: case 6:
				encode(&b);
				break;
			default:
				send_one(&b);
			}
			settle_if_due(&b);
		}
	victim_settle(&b);
	return 0;
}

int main(int argc, char **argv)
{
	int n = victim_number(argc, argv, 3, 50);
	pthread_t *threads = calloc(n, sizeof *threads);

	victim_open("threads50", stacks, SITES, victim_number(argc, argv, 1, 10));
	for (uint64_t i = 0; i < (uint64_t)n; i++)
		if (pthread_create(&threads[i], 0, worker, (void *)i)) {
			perror("victim: thread");
			return 1;
		}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], 0);
	victim_close();
	return 0;
}
