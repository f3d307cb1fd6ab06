// head jumps to middle, middle to tail: callers that jumped are on no stack.
#include "victim.h"

enum { HEAD = 1, MIDDLE, TAIL, PLAIN, SITES };

static const char *const stacks[SITES] = {
	"", "main;run;head", "main;run;middle", "main;run;tail", "main;run;plain",
};

FUNCTION void tail(struct burner *b) { burn(b, TAIL, slice(b), 11); }

FUNCTION void middle(struct burner *b)
{
	burn(b, MIDDLE, slice(b) / 2, 13);
	tail(b);
}

FUNCTION void head(struct burner *b)
{
	burn(b, HEAD, slice(b) / 4, 17);
	middle(b);
}

FUNCTION void plain(struct burner *b) { burn(b, PLAIN, slice(b), 19); }

FUNCTION void run(struct burner *b)
{
	while (!victim_done())
		for (int i = 0; i < 100; i++) {
			if (draw(b) % 3)
				head(b);
			else
				plain(b);
			settle_if_due(b);
		}
	victim_settle(b);
}

int main(int argc, char **argv)
{
	struct burner b;

	victim_open("tailcall", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, victim_number(argc, argv, 2, 1));
	run(&b);
	victim_close();
	return 0;
}
