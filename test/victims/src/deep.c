// A hundred functions, each called by the one before it; four of them burn.
#include "victim.h"

enum { L24 = 1, L49, L74, L99, SITES };

// Each level passes `target`, the one that is to burn, on to the next; pad
// gives every frame a size of its own.
#define LEVEL(n, next, work) \
	FUNCTION void level_##n(struct burner *b, int target) \
	{ \
		char pad[(1##n % 7) * 16 + 8]; \
		__asm__ volatile("" : : "r"(pad) : "memory"); \
		if (1##n == target + 100) \
			work; \
		else \
			level_##next(b, target); \
		NOT_LAST(); \
	}
#define PASS (void)0

FUNCTION void level_99(struct burner *b, int target)
{
	(void)target;
	burn(b, L99, slice(b), 99);
}

// clang-format off
LEVEL(98, 99, PASS) LEVEL(97, 98, PASS) LEVEL(96, 97, PASS) LEVEL(95, 96, PASS) LEVEL(94, 95, PASS)
LEVEL(93, 94, PASS) LEVEL(92, 93, PASS) LEVEL(91, 92, PASS) LEVEL(90, 91, PASS) LEVEL(89, 90, PASS)
LEVEL(88, 89, PASS) LEVEL(87, 88, PASS) LEVEL(86, 87, PASS) LEVEL(85, 86, PASS) LEVEL(84, 85, PASS)
LEVEL(83, 84, PASS) LEVEL(82, 83, PASS) LEVEL(81, 82, PASS) LEVEL(80, 81, PASS) LEVEL(79, 80, PASS)
LEVEL(78, 79, PASS) LEVEL(77, 78, PASS) LEVEL(76, 77, PASS) LEVEL(75, 76, PASS)
LEVEL(74, 75, burn(b, L74, slice(b), 74))
LEVEL(73, 74, PASS) LEVEL(72, 73, PASS) LEVEL(71, 72, PASS) LEVEL(70, 71, PASS) LEVEL(69, 70, PASS)
LEVEL(68, 69, PASS) LEVEL(67, 68, PASS) LEVEL(66, 67, PASS) LEVEL(65, 66, PASS) LEVEL(64, 65, PASS)
LEVEL(63, 64, PASS) LEVEL(62, 63, PASS) LEVEL(61, 62, PASS) LEVEL(60, 61, PASS) LEVEL(59, 60, PASS)
LEVEL(58, 59, PASS) LEVEL(57, 58, PASS) LEVEL(56, 57, PASS) LEVEL(55, 56, PASS) LEVEL(54, 55, PASS)
LEVEL(53, 54, PASS) LEVEL(52, 53, PASS) LEVEL(51, 52, PASS) LEVEL(50, 51, PASS)
LEVEL(49, 50, burn(b, L49, slice(b), 49))
LEVEL(48, 49, PASS) LEVEL(47, 48, PASS) LEVEL(46, 47, PASS) LEVEL(45, 46, PASS) LEVEL(44, 45, PASS)
LEVEL(43, 44, PASS) LEVEL(42, 43, PASS) LEVEL(41, 42, PASS) LEVEL(40, 41, PASS) LEVEL(39, 40, PASS)
LEVEL(38, 39, PASS) LEVEL(37, 38, PASS) LEVEL(36, 37, PASS) LEVEL(35, 36, PASS) LEVEL(34, 35, PASS)
LEVEL(33, 34, PASS) LEVEL(32, 33, PASS) LEVEL(31, 32, PASS) LEVEL(30, 31, PASS) LEVEL(29, 30, PASS)
LEVEL(28, 29, PASS) LEVEL(27, 28, PASS) LEVEL(26, 27, PASS) LEVEL(25, 26, PASS)
LEVEL(24, 25, burn(b, L24, slice(b), 24))
LEVEL(23, 24, PASS) LEVEL(22, 23, PASS) LEVEL(21, 22, PASS) LEVEL(20, 21, PASS) LEVEL(19, 20, PASS)
LEVEL(18, 19, PASS) LEVEL(17, 18, PASS) LEVEL(16, 17, PASS) LEVEL(15, 16, PASS) LEVEL(14, 15, PASS)
LEVEL(13, 14, PASS) LEVEL(12, 13, PASS) LEVEL(11, 12, PASS) LEVEL(10, 11, PASS) LEVEL(09, 10, PASS)
LEVEL(08, 09, PASS) LEVEL(07, 08, PASS) LEVEL(06, 07, PASS) LEVEL(05, 06, PASS) LEVEL(04, 05, PASS)
LEVEL(03, 04, PASS) LEVEL(02, 03, PASS) LEVEL(01, 02, PASS) LEVEL(00, 01, PASS)
// clang-format on

FUNCTION void run(struct burner *b)
{
	static const int targets[] = {24, 49, 74, 74, 99, 99, 99, 99};

	while (!victim_done())
		for (int i = 0; i < 100; i++) {
			level_00(b, targets[draw(b) % 8]);
			settle_if_due(b);
		}
	victim_settle(b);
}

// levels writes the stack down to level n.
static void levels(char *to, int n)
{
	int at = 0;

	for (const char *s = "main;run"; *s; s++)
		to[at++] = *s;
	for (int i = 0; i <= n; i++)
		for (const char *s = ";level_"; ; s++) {
			if (*s) {
				to[at++] = *s;
				continue;
			}
			to[at++] = '0' + i / 10;
			to[at++] = '0' + i % 10;
			break;
		}
	to[at] = 0;
}

int main(int argc, char **argv)
{
	static char names[SITES][1200];
	const char *stacks[SITES] = {names[0], names[1], names[2], names[3], names[4]};
	struct burner b;

	for (int i = 1; i < SITES; i++)
		levels(names[i], i * 25 - 1);
	victim_open("deep", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, victim_number(argc, argv, 2, 1));
	run(&b);
	victim_close();
	return 0;
}
