// Loads one of two libraries, burns in it, unloads it; both tend to land on the same addresses.
//
// The second argument is how many ms each stays loaded (200). The libraries
// are looked for beside the executable: dlopener-first.so, dlopener-second.so.
#define _GNU_SOURCE
#include "victim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SITES = 5 };

static const char *const stacks[SITES] = {
	"",
	"main;run;plugin_run;first_outer", "main;run;plugin_run;first_outer;first_inner",
	"main;run;plugin_run;second_outer", "main;run;plugin_run;second_outer;second_inner",
};

FUNCTION void run(struct burner *b, const char *self, double ms)
{
	static const char *const names[] = {"first", "second"};
	char path[4096];

	for (int i = 0; !victim_done(); i++) {
		void (*plugin)(struct burner *);
		uint64_t end;
		void *library;

		snprintf(path, sizeof path, "%s-%s.so", self, names[i % 2]);
		library = dlopen(path, RTLD_NOW);
		plugin = library ? (void (*)(struct burner *))dlsym(library, "plugin_run") : 0;
		if (!plugin) {
			fprintf(stderr, "victim: %s\n", dlerror());
			exit(1);
		}
		for (end = counter() + ms * 1000 * b->ticks_per_us; counter() < end;) {
			plugin(b);
			settle_if_due(b);
		}
		dlclose(library);
	}
	victim_settle(b);
}

int main(int argc, char **argv)
{
	char self[4000] = "";
	struct burner b;

	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		perror("victim: own path");
	victim_open("dlopener", stacks, SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, 1);
	run(&b, self, victim_number(argc, argv, 2, 200));
	victim_close();
	return 0;
}
