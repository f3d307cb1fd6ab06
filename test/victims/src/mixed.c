// Functions of very different shares, some reached by two paths.
#include "victim.h"

int mixed(const char *name, int argc, char **argv);

enum { SCAN = 1, PARSE, HASH_PARSE, HASH_STORE, STORE, RARE, SITES };

static const char *const stacks[SITES] = {
	"", "main;run;scan", "main;run;parse", "main;run;parse;hash", "main;run;store;hash", "main;run;store", "main;run;rare",
};

FUNCTION void hash(struct burner *b, int site) { burn(b, site, slice(b), 11); }

FUNCTION void scan(struct burner *b) { burn(b, SCAN, slice(b), 13); }

FUNCTION void rare(struct burner *b) { burn(b, RARE, slice(b), 17); }

FUNCTION void parse(struct burner *b)
{
	burn(b, PARSE, slice(b), 19);
	if (draw(b) % 4 == 0)
		hash(b, HASH_PARSE);
	NOT_LAST();
}

FUNCTION void store(struct burner *b)
{
	hash(b, HASH_STORE);
	burn(b, STORE, slice(b) / 4, 23);
	NOT_LAST();
}

FUNCTION void run(struct burner *b)
{
	while (!victim_done())
		for (int i = 0; i < 100; i++) {
			uint64_t u = draw(b) % 1000;

			if (u < 15)
				rare(b);
			else if (u < 150)
				store(b);
			else if (u < 450)
				parse(b);
			else
				scan(b);
			settle_if_due(b);
		}
	victim_settle(b);
}

int mixed(const char *name, int argc, char **argv)
{
	struct burner b;

	victim_open(name, stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, victim_number(argc, argv, 2, 1));
	run(&b);
	victim_close();
	return 0;
}

#ifndef PART // of another victim, which has its own main
int main(int argc, char **argv) { return mixed("mixed", argc, argv); }
#endif
