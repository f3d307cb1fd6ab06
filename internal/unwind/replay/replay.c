//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The unwinder of unwind.h as a program of its own: walks the images that it is
 * given, with reads that can be made to fail. image.go draws the messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define ATYS_REPLAY
#define STEP static __attribute__((noinline))
#define READ_USER(to, size, from) read_user(to, size, from)
#define MAPPINGS() (&mappings)
#define EXECUTABLES() (&executables)
#define ROWS() (&rows)
#define PAGES() (&pages)

extern struct mappings mappings;
extern struct executables executables;
extern struct rows rows;
extern struct pages pages;
static long read_user(void *to, u32 size, u64 from);

#include "unwind.h"

#define MAX_PIECES 256
#define MAX_MEMORY (1u << 20)
#define NEVER 0xffffffffu

/* What user memory the image holds. */
static struct piece {
	u64 start, size;
	u8 *bytes;
} pieces[MAX_PIECES];

static u32 piece_count, reads, fails_at;
static u64 failed; /* address of the first read that failed */
struct mappings mappings;
struct executables executables;
struct rows rows;
struct pages pages;
static struct walk walk;

/* Like bpf_probe_read_user: all or nothing, and zeroes where it fails. */
static long read_user(void *to, u32 size, u64 from)
{
	bool fails = reads++ == fails_at;
	for (u32 i = 0; i < piece_count && !fails; i++) {
		u64 at = from - pieces[i].start;
		if (at < pieces[i].size && pieces[i].size - at >= size) {
			memcpy(to, pieces[i].bytes + at, size);
			return 0;
		}
	}
	memset(to, 0, size);
	if (!failed)
		failed = from;
	return -14; /* EFAULT */
}

static void need(void *to, size_t size)
{
	if (size && fread(to, size, 1, stdin) != 1) {
		fprintf(stderr, "replay: input ends within a message\n");
		exit(1);
	}
}

static u32 number(u32 max, const char *what)
{
	u32 n;
	need(&n, sizeof(n));
	if (n > max) {
		fprintf(stderr, "replay: %u %s, at most %u\n", n, what, max);
		exit(1);
	}
	return n;
}

static void read_image(void)
{
	u32 n = number(MAX_MAPPINGS, "mappings");
	need(mappings.m, n * sizeof(mappings.m[0]));
	walk.process.first = 0;
	walk.process.count = n;
	n = number(MAX_EXECUTABLES, "executables");
	need(executables.e, n * sizeof(executables.e[0]));
	n = number(MAX_ROWS, "rows");
	need(rows.r, n * sizeof(rows.r[0]));
	n = number(MAX_PAGES, "pages");
	need(pages.p, n * sizeof(pages.p[0]));
	for (u32 i = 0; i < piece_count; i++)
		free(pieces[i].bytes);
	piece_count = number(MAX_PIECES, "pieces of memory");
	for (u32 i = 0; i < piece_count; i++) {
		need(&pieces[i].start, sizeof(pieces[i].start));
		pieces[i].size = number(MAX_MEMORY, "bytes in a piece");
		pieces[i].bytes = malloc(pieces[i].size + 1);
		if (!pieces[i].bytes)
			exit(1);
		need(pieces[i].bytes, pieces[i].size);
	}
}

static void walk_image(void)
{
	struct pt_regs regs;

	need(&regs, sizeof(regs));
	fails_at = number(NEVER, "");
	reads = 0;
	failed = 0;
	start_walk(&walk, &regs);
	walk_stack(&walk);
	u32 head[] = {walk.end, walk.count, reads, 0};
	fwrite(head, sizeof(head), 1, stdout);
	fwrite(&failed, sizeof(failed), 1, stdout);
	fwrite(walk.frames, sizeof(walk.frames[0]), walk.count, stdout);
	fflush(stdout);
}

int main(void)
{
	for (int kind; (kind = getchar()) != EOF;) {
		if (kind == 'I')
			read_image();
		else if (kind == 'W')
			walk_image();
		else
			return 2;
	}
	return 0;
}
