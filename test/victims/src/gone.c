// The work of mixed, in an executable that no path leads to.
//
// MEMFD: it copies itself to a memfd and executes that. Else: it copies itself
// to a file beside it, executes that, and then renames another file over it:
// its path exists, with other content.
#define _GNU_SOURCE
#include "victim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

int mixed(const char *name, int argc, char **argv);

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void copy_self(int to)
{
	int from = open("/proc/self/exe", O_RDONLY);
	ssize_t n;

	if (from < 0 || to < 0)
		fail("victim: open");
	while ((n = sendfile(to, from, 0, 1 << 30)) > 0)
		;
	if (n < 0)
		fail("victim: copy");
	close(from);
}

#ifdef MEMFD
static const char name[] = "memfd";

static void move_in(char **argv)
{
	int fd = memfd_create("victim", MFD_CLOEXEC);

	copy_self(fd);
	setenv("VICTIM_MOVED", "1", 1);
	fexecve(fd, argv, environ);
	fail("victim: execute memfd");
}

static void move_out(void) {}
#else
static const char name[] = "deleted";

static void move_in(char **argv)
{
	char path[4096 + 24], self[4096] = "";
	int fd;

	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		fail("victim: own path");
	snprintf(path, sizeof path, "%s.%d", self, getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	copy_self(fd);
	close(fd);
	setenv("VICTIM_MOVED", path, 1);
	execv(path, argv);
	fail("victim: execute copy");
}

static void move_out(void)
{
	const char *path = getenv("VICTIM_MOVED");
	char other[4096 + 32];
	FILE *f;

	snprintf(other, sizeof other, "%s.new", path);
	f = fopen(other, "w");
	if (!f || fputs("#!/bin/sh\nexit 1\n", f) < 0 || fclose(f) || rename(other, path))
		fail("victim: replace");
}
#endif

int main(int argc, char **argv)
{
	if (!getenv("VICTIM_MOVED"))
		move_in(argv);
	move_out();
	return mixed(name, argc, argv);
}
