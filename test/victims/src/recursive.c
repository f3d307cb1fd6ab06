// A random tree is walked in mutual recursion, up to 60 activations deep.
#include "victim.h"

enum { VISIT = 1, DESCEND, LEAF, COMBINE, SITES };

static const char *const stacks[SITES] = {
	"", "main;run;visit", "main;run;visit;descend", "main;run;visit;descend;leaf", "main;run;visit;combine",
};

FUNCTION void visit(struct burner *b, int depth);

FUNCTION void leaf(struct burner *b) { burn(b, LEAF, slice(b), 11); }

FUNCTION void combine(struct burner *b) { burn(b, COMBINE, slice(b) / 2, 13); }

FUNCTION void descend(struct burner *b, int depth)
{
	burn(b, DESCEND, slice(b) / 4, 17);
	settle_if_due(b);
	if (depth > 0 && draw(b) % 8)
		visit(b, depth - 1);
	else
		leaf(b);
	NOT_LAST();
}

FUNCTION void visit(struct burner *b, int depth)
{
	if (draw(b) % 3 == 0)
		burn(b, VISIT, slice(b), 19);
	descend(b, depth);
	if (draw(b) % 2)
		combine(b);
	settle_if_due(b);
}

FUNCTION void run(struct burner *b)
{
	while (!victim_done())
		visit(b, 29);
	victim_settle(b);
}

int main(int argc, char **argv)
{
	struct burner b;

	victim_open("recursive", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, victim_number(argc, argv, 2, 1));
	run(&b);
	victim_close();
	return 0;
}
