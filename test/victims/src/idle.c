// Many threads (300, or the second argument) that sleep; each wakes once a second for nothing.
#define _GNU_SOURCE
#include "victim.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static const char *const stacks[] = {""};

FUNCTION void *sleeper(void *unused)
{
	while (!victim_done())
		usleep(1000000);
	return unused;
}

int main(int argc, char **argv)
{
	int n = victim_number(argc, argv, 2, 300);
	pthread_attr_t small;
	pthread_t thread;

	victim_open("idle", stacks, 1, victim_number(argc, argv, 1, 10));
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < n; i++)
		if (pthread_create(&thread, &small, sleeper, 0)) {
			perror("victim: thread");
			return 1;
		}
	while (!victim_done())
		usleep(20000);
	victim_close();
	return 0;
}
