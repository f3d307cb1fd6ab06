// One page of code is mapped 1,200 times (or the second argument) and burns in each of them.
//
// Neighbours map the same offset of the file, so the kernel cannot merge them.
#define _GNU_SOURCE
#include "victim.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ISLAND = 1, SITES };
enum { PAGE = 4096 };

static const char *const stacks[SITES] = {"", "main;run;island"};

// The page: it refers to nothing outside its arguments.
__attribute__((section(".text.island"), aligned(4096))) FUNCTION void island(struct burner *b, uint64_t ticks)
{
	burn(b, ISLAND, ticks, 11);
}

__attribute__((section(".text.island"), aligned(4096))) FUNCTION void island_end(void) { NOT_LAST(); }

// offset finds where in the file an address of this program comes from.
static uint64_t offset(uintptr_t address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t from, to, at;
	char line[4300];

	while (maps && fgets(line, sizeof line, maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &from, &to, &at) == 3 && from <= address && address < to)
			return at + address - from;
	fprintf(stderr, "victim: no mapping of the island\n");
	exit(1);
}

FUNCTION void run(struct burner *b, char *maps, int n)
{
	uintptr_t within = (uintptr_t)island % PAGE;

	while (!victim_done())
		for (int i = 0; i < n; i++) {
			void (*f)(struct burner *, uint64_t);
			void *at = maps + (uint64_t)i * PAGE + within;

			memcpy(&f, &at, sizeof f);
			f(b, slice(b));
			settle_if_due(b);
		}
	victim_settle(b);
}

int main(int argc, char **argv)
{
	int n = victim_number(argc, argv, 2, 1200), file = open("/proc/self/exe", O_RDONLY);
	uint64_t at = offset((uintptr_t)island) / PAGE * PAGE;
	char *maps = mmap(0, (uint64_t)n * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct burner b;

	for (int i = 0; i < n; i++)
		if (mmap(maps + (uint64_t)i * PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, at) == MAP_FAILED) {
			perror("victim: map");
			return 1;
		}
	victim_open("manymaps", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, 1);
	run(&b, maps, n);
	victim_close();
	return 0;
}
