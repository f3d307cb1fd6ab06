//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The unwinder of unwind.h as a program of its own: walks the images that it is
 * given, with reads that can be made to fail. image.go draws the messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define ATYS_REPLAY
#define WALKS_LANGUAGES
#define STEP static __attribute__((noinline))
#define READ_USER(to, size, from) read_user(to, size, from)
#define READ_USER_TEXT(to, size, from) read_user_text(to, size, from)
#define MAPPINGS() (&mappings)
#define EXECUTABLES() (&executables)
#define ROWS() (&rows)
#define CELLS() (&cells)
#define TICK() 1

extern struct mappings mappings;
extern struct executables executables;
extern struct rows rows;
extern struct cells cells;
static long read_user(void *to, u32 size, u64 from);
static long read_user_text(void *to, u32 size, u64 from);

/* What the process runs, one for each language that the image has. */
#define THREAD_POINTER() (thread_pointer)
#define PROCESSES_OF(name, language) \
	static struct name##_process *name##_process_of(u32 tgid) \
	{ \
		return parameters_of(language, tgid); \
	}

static u64 thread_pointer;
static void *parameters_of(u32 language, u32 tgid);

/* Photographs are kept for each walk, in the order in which they are taken. */
struct photograph;
struct walk;
#define identity(address, more) (mix(mix(0, address), more) & LANGUAGE_WHAT)
#define SUBMIT_PHOTOGRAPH(p, flags) end_photograph(p)
#define sight(w, kind, what, number, where) ((void)0)
static struct photograph *begin_photograph(struct walk *w, u32 kind, u64 what);
static void end_photograph(struct photograph *p);

#include "unwind.h"

#define MAX_PIECES 8192
#define MAX_MEMORY (1u << 20)
#define MAX_FAILED 256
#define MAX_PHOTOGRAPHS 512
#define MAX_LANGUAGES 16
#define MAX_PARAMETERS 4096
#define NEVER 0xffffffffu

/* What user memory the image holds. */
static struct piece {
	u64 start, size;
	u8 *bytes;
} pieces[MAX_PIECES];

/* Reads that failed. */
static struct {
	u64 from, size;
} failed[MAX_FAILED];

static u32 piece_count, reads, fails_at, failed_count;
static u64 parameters[MAX_LANGUAGES][MAX_PARAMETERS / 8];
static bool has_parameters[MAX_LANGUAGES];
static struct photograph album[MAX_PHOTOGRAPHS];
static u32 photograph_count;
struct mappings mappings;
struct executables executables;
struct rows rows;
struct cells cells;
static struct walk walk;

/* The bytes at an address, and how many the piece has from there on; 0: none.
 * Pieces may overlap: the last that has them all counts. */
static const u8 *find(u64 from, u64 size, u64 *left)
{
	for (u32 i = piece_count; i-- > 0;) {
		u64 at = from - pieces[i].start;
		if (at < pieces[i].size && pieces[i].size - at >= size) {
			*left = pieces[i].size - at;
			return pieces[i].bytes + at;
		}
	}
	return 0;
}

static bool may_read(u64 from, u64 size, const u8 **bytes, u64 *left)
{
	*bytes = reads++ == fails_at ? 0 : find(from, size, left);
	if (*bytes)
		return true;
	if (failed_count < MAX_FAILED) {
		failed[failed_count].from = from;
		failed[failed_count++].size = size;
	}
	return false;
}

/* Like bpf_probe_read_user: all or nothing, and zeroes where it fails. */
static long read_user(void *to, u32 size, u64 from)
{
	const u8 *bytes;
	u64 left;
	if (may_read(from, size, &bytes, &left)) {
		memcpy(to, bytes, size);
		return 0;
	}
	memset(to, 0, size);
	return -14; /* EFAULT */
}

/* Like bpf_probe_read_user_str: up to a NUL, which is always written. */
static long read_user_text(void *to, u32 size, u64 from)
{
	const u8 *bytes = 0;
	u64 left = 0;
	u32 n = 0;
	for (; n + 1 < size; n++, bytes++, left--) {
		if (left == 0 && !may_read(from + n, 1, &bytes, &left))
			return -14;
		if (!*bytes)
			break;
		((u8 *)to)[n] = *bytes;
	}
	((u8 *)to)[n] = 0;
	return n + 1;
}

static void *parameters_of(u32 language, u32 tgid)
{
	return tgid == walk.owner && has_parameters[language] ? parameters[language] : 0;
}

#define sight(w, kind, what, number, where) ((void)0)
static struct photograph *begin_photograph(struct walk *w, u32 kind, u64 what)
{
	for (u32 i = 0; i < photograph_count; i++)
		if (album[i].kind == kind && album[i].what == what)
			return 0;
	if (photograph_count == MAX_PHOTOGRAPHS)
		return 0;
	struct photograph *p = &album[photograph_count];
	memset(p, 0, sizeof(*p));
	p->tgid = w->owner;
	p->kind = kind;
	p->what = what;
	return p;
}

static void end_photograph(struct photograph *p)
{
	if (p == &album[photograph_count])
		photograph_count++;
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

static void read_piece(void)
{
	if (piece_count == MAX_PIECES) {
		fprintf(stderr, "replay: more than %u pieces of memory\n", MAX_PIECES);
		exit(1);
	}
	struct piece *p = &pieces[piece_count];
	need(&p->start, sizeof(p->start));
	p->size = number(MAX_MEMORY, "bytes in a piece");
	p->bytes = malloc(p->size + 1);
	if (!p->bytes)
		exit(1);
	need(p->bytes, p->size);
	piece_count++;
}

static const u32 parameter_sizes[MAX_LANGUAGES] = {
	[LANGUAGE_PYTHON] = sizeof(struct python_process), [LANGUAGE_JAVA] = sizeof(struct hotspot_process),
	[LANGUAGE_V8] = sizeof(struct v8_process),	   [LANGUAGE_RUBY] = sizeof(struct ruby_process),
	[LANGUAGE_PHP] = sizeof(struct php_process),	   [LANGUAGE_PERL] = sizeof(struct perl_process),
	[LANGUAGE_BEAM] = sizeof(struct beam_process),	   [LANGUAGE_DOTNET] = sizeof(struct dotnet_process),
};

static void read_languages(void)
{
	need(&walk.process.languages, sizeof(walk.process.languages));
	memset(has_parameters, 0, sizeof(has_parameters));
	memset(parameters, 0, sizeof(parameters));
	for (u32 n = number(MAX_LANGUAGES, "languages"); n > 0; n--) {
		u32 language = number(MAX_LANGUAGES - 1, "as a language");
		u32 size = number(MAX_PARAMETERS, "bytes of parameters");
		if (size != parameter_sizes[language]) {
			fprintf(stderr, "replay: %u bytes of parameters of language %u, its walker reads %u: record the image anew\n",
				size, language, parameter_sizes[language]);
			exit(1);
		}
		need(parameters[language], size);
		has_parameters[language] = true;
	}
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
	n = number(MAX_CELLS, "cells");
	need(cells.c, n * sizeof(cells.c[0]));
	read_languages();
	while (piece_count > 0)
		free(pieces[--piece_count].bytes);
	for (n = number(MAX_PIECES, "pieces of memory"); n > 0; n--)
		read_piece();
}

static void walk_image(void)
{
	struct pt_regs regs;

	need(&regs, sizeof(regs));
	need(&thread_pointer, sizeof(thread_pointer));
	fails_at = number(NEVER, "");
	reads = failed_count = photograph_count = 0;
	start_walk(&walk, &regs);
	walk_stack(&walk);
	u32 head[] = {walk.end, walk.count, reads, failed_count, photograph_count};
	fwrite(head, sizeof(head), 1, stdout);
	fwrite(failed, sizeof(failed[0]), failed_count, stdout);
	fwrite(walk.frames, sizeof(walk.frames[0]), walk.count, stdout);
	fwrite(album, sizeof(album[0]), photograph_count, stdout);
	fflush(stdout);
}

int main(void)
{
	for (int kind; (kind = getchar()) != EOF;) {
		if (kind == 'I')
			read_image();
		else if (kind == 'M')
			read_piece();
		else if (kind == 'W')
			walk_image();
		else
			return 2;
	}
	return 0;
}
