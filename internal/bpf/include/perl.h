/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Perl subs on a stack: Perl 5.36 built for threads (ithreads), as Debian's is.
 *
 *   thread pointer -> interpreter -> stack info -> stack info -> ...
 *                       | position      | contexts: sub, eval, block, loop ...
 *
 * Perl_runops_standard, whose native frame is on the stack, ran the contexts up
 * to a sub that returns to no operation, or to the end of a stack info. An eval
 * that something written in C is to be protected from has a run of its own
 * (docatch): it says so by the address of a jump buffer next to that.
 * Package lang/perl finds the addresses, and names what is recorded here:
 *
 *   what    identity of the code: sub, eval, file, program
 *   where   line being executed
 */
#ifndef ATYS_PERL_H
#define ATYS_PERL_H

#include "photographs.h"
#include "processes.h"

/* A process, as package lang/perl found it. */
struct perl_process {
	u64 block; /* from the thread pointer to a pointer to the block with */
	u64 slot;  /* the pointer to the interpreter; without block: from the thread pointer */
	struct {
		u64 start, end;
	} run; /* code of Perl_runops_standard, by file offset */
};

PROCESSES_OF(perl, LANGUAGE_PERL)

/* struct interpreter */
#define PERL_POSITION 208
#define PERL_STACK_INFO 224
#define PERL_FIRST_JUMP 768 /* PL_start_env */

#define PERL_CONTEXT_BYTES 104

/* struct context, in words */
enum perl_context {
	PERL_TYPE,
	PERL_OLD_POSITION = 2,
	PERL_RETURN = 6, /* operation after it; 0: it ends the run */
	PERL_FILE_NAME = 8, /* of an eval that is require or do: a string */
	PERL_SUB = 9,
	PERL_JUMP = 12, /* of an eval */
};

#define PERL_TYPE_MASK 15
#define PERL_IS_SUB 9
#define PERL_IS_FORMAT 10
#define PERL_IS_EVAL 11
#define PERL_IS_TRY 0x40 /* eval { }: part of the sub around it */
#define PERL_EVAL_OP(type) ((type) >> 23 & 0x1ff)

#define PERL_POSITION_TYPE 32 /* where that begins */
#define PERL_NEXT_STATE 195
#define PERL_DEBUG_STATE 196

#define PERL_SUB_BODY 32
#define PERL_SUB_NAMED 0x8000 /* name is a string (HEK), else a glob */
#define PERL_SV_FLAGS 12
#define PERL_SV_TEXT 16
#define PERL_SV_IS_TEXT 0x400 /* a flag */
#define PERL_SV_SUB 13
#define PERL_SV_FORMAT 14

/* What a frame is, for Go. */
enum perl_kind {
	PERL_KIND_SUB,
	PERL_KIND_EVAL,
	PERL_KIND_MAIN,
};

/* Frames of Perl cannot be told from here on: the stack must not pass for whole. */
static __always_inline u32 perl_broken(struct perl_walk *s)
{
	s->info = 0;
	s->broken = 1;
	return 0;
}

/* Goes to a stack info: the contexts of one are a list of their own. */
static __always_inline void perl_enter(struct perl_walk *s, struct perl_words *v, u64 info)
{
	struct perl_stack_info *i = &v->info;
	s->info = info;
	if (!info)
		return;
	if (!is_object(info) || READ_USER(i, sizeof(*i), info + 8) || i->last < -1 || i->last > 1 << 24) {
		perl_broken(s);
		return;
	}
	s->previous = i->previous;
	s->contexts = i->contexts;
	s->left = i->last + 1;
	s->subs = i->last_sub + 1;
}

/* Reads where the thread's contexts begin. One without an interpreter has none. */
static __always_inline void perl_begin(struct perl_walk *s, struct perl_words *v, struct perl_process *p)
{
	u64 base = THREAD_POINTER(), interpreter = 0, info = 0;
	s->info = 0;
	if (p->block && (READ_USER(&base, 8, base + p->block) || !base))
		return;
	if (READ_USER(&interpreter, 8, base + p->slot) || !interpreter)
		return;
	s->interpreter = interpreter;
	if (!is_object(interpreter) || READ_USER(&s->position, 8, interpreter + PERL_POSITION) ||
	    READ_USER(&info, 8, interpreter + PERL_STACK_INFO))
		perl_broken(s);
	else
		perl_enter(s, v, info);
	if (!s->info)
		perl_broken(s);
}

#define PERL_NAME_BYTES 512
#define PERL_FILE_AT (2 * PERL_NAME_BYTES)
#define PERL_FILE_BYTES (PHOTOGRAPH_BYTES - PERL_FILE_AT)

/* What a photograph holds: package, name and file at these places, and the
 * whole length of each, which may not have had room. */
enum perl_value {
	PERL_KIND,
	PERL_START_LINE,
	PERL_WAS_REQUIRED, /* the operation of an eval */
};

/* Copies a hash key: its hash u32, its length u32, its bytes. */
static __always_inline u32 perl_copy_key(u8 *to, u32 room, u64 key)
{
	u32 head[2];
	if (!is_object(key & ~7ull) || READ_USER(head, sizeof(head), key) || head[1] >> 24)
		return 0;
	u32 n = head[1] > room ? room : head[1];
	OPAQUE(n);
	if (n > room || n == 0 || READ_USER(to, n, key + 8))
		return 0;
	return head[1];
}

/* Copies bytes up to a NUL, and gives how many. */
static __always_inline u32 perl_copy_bytes(u8 *to, u32 room, u64 from)
{
	long n = READ_USER_TEXT(to, room, from);
	return n > 0 ? n - 1 : 0;
}

/* Copies a scalar that is a string. */
static __always_inline u32 perl_copy_text(u8 *to, u32 room, u64 scalar)
{
	u32 flags = 0;
	u64 text = 0;
	if (!is_object(scalar) || READ_USER(&flags, 4, scalar + PERL_SV_FLAGS) || !(flags & PERL_SV_IS_TEXT) ||
	    READ_USER(&text, 8, scalar + PERL_SV_TEXT))
		return 0;
	return perl_copy_bytes(to, room, text);
}

/* The name of a package: of several, the first. It lies behind the body. */
static __always_inline u64 perl_package(u64 stash)
{
	u64 body = 0, name[4] = {};
	if (!is_object(stash) || READ_USER(&body, 8, stash) || !is_object(body) ||
	    READ_USER(name, sizeof(name), body + 32))
		return 0;
	if (name[3] >> 32 && READ_USER(&name[0], 8, name[0]))
		return 0;
	return name[0];
}

STEP u32 perl_photograph(struct walk *w)
{
	if (!w)
		return 0;
	struct perl_walk *s = &w->languages.perl;
	struct perl_words *v = &w->script.perl;
	if (!s->met)
		return 0;
	struct photograph *photo = begin_photograph(w, LANGUAGE_PERL, s->what);
	if (!photo)
		return 0;
	u64 stash = s->stash, name = s->name, body = 0, glob[2] = {}; /* name, stash */
	photo->values[PERL_KIND] = s->kind;
	photo->values[PERL_START_LINE] = s->start_line;
	photo->values[PERL_WAS_REQUIRED] = PERL_EVAL_OP(v->context[PERL_TYPE]);
	if (s->kind == PERL_KIND_EVAL) {
		photo->lengths[1] = perl_copy_text(photo->bytes + PERL_NAME_BYTES, PERL_NAME_BYTES, name);
		name = 0;
	}
	if (name && !s->named) {
		if (READ_USER(&body, 8, name) || READ_USER(glob, sizeof(glob), body + 32))
			name = 0;
		else
			name = glob[0], stash = glob[1];
	}
	photo->lengths[0] = perl_copy_key(photo->bytes, PERL_NAME_BYTES, perl_package(stash));
	if (name)
		photo->lengths[1] = perl_copy_key(photo->bytes + PERL_NAME_BYTES, PERL_NAME_BYTES, name);
	photo->lengths[2] = perl_copy_bytes(photo->bytes + PERL_FILE_AT, PERL_FILE_BYTES, s->file);
	end_photograph(photo);
	return 0;
}

/* Adds a frame of the code described in s, at the position being executed. */
static __always_inline void push_perl(struct walk *w, struct perl_walk *s, u64 address, u64 more)
{
	struct perl_position *at = &w->script.perl.position;
	if (READ_USER(at, sizeof(*at), s->position + PERL_POSITION_TYPE))
		at->line = at->sequence = at->file = 0;
	if (s->kind != PERL_KIND_SUB)
		s->file = at->file;
	if (s->kind == PERL_KIND_EVAL)
		more = mix(mix(0, more), at->sequence); /* mix alone would let one make up for the other */
	s->what = identity(address, mix(more, s->kind));
	push_language_frame(w, LANGUAGE_PERL, s->what, at->line);
	s->met = 1;
}

/* Adds the sub of a context. What was compiled as one thing has a number for
 * ever: it tells closures of the same code from code that was freed. */
static __always_inline u32 add_perl_sub(struct walk *w, struct perl_walk *s)
{
	struct perl_words *v = &w->script.perl;
	struct perl_sub *f = &v->sub;
	struct perl_position *start = &v->start;
	u64 body = 0, sub = v->context[PERL_SUB];
	u32 flags = 0;
	if (!is_object(sub) || READ_USER(&flags, 4, sub + PERL_SV_FLAGS) || READ_USER(&body, 8, sub))
		return 1;
	flags &= 255;
	if ((flags != PERL_SV_SUB && flags != PERL_SV_FORMAT) || READ_USER(f, sizeof(*f), body + PERL_SUB_BODY))
		return 1;
	if (READ_USER(start, sizeof(*start), f->start + PERL_POSITION_TYPE))
		start->type = 0;
	u32 type = start->type & 0x1ff;
	if (type != PERL_NEXT_STATE && type != PERL_DEBUG_STATE)
		start->line = start->sequence = 0;
	s->kind = PERL_KIND_SUB;
	s->start_line = start->line;
	s->file = start->line ? start->file : f->file;
	s->stash = f->stash;
	s->name = f->name;
	s->named = !!(f->flags & PERL_SUB_NAMED);
	push_perl(w, s, f->start, mix(mix(mix(0, f->name), f->stash), start->sequence));
	return 0;
}

/* Adds the program itself, below all contexts. */
static __always_inline void add_perl_main(struct walk *w, struct perl_walk *s)
{
	s->kind = PERL_KIND_MAIN;
	s->start_line = 0;
	s->name = s->stash = 0;
	push_perl(w, s, s->interpreter, 0);
}

#define PERL_MORE 1 /* the run has more contexts */
#define PERL_END 0  /* that was its last */

/* Whether an eval has a run of its own: its jump buffer lies right above the
 * run's native frame. perl_run has one there too, but no other around it. */
static __always_inline bool perl_is_protected(struct walk *w, struct perl_walk *s)
{
	struct perl_words *v = &w->script.perl;
	u64 jump = v->context[PERL_JUMP], around = 0;
	if (jump < w->sp || jump - w->sp > 1024 || READ_USER(&around, 8, jump))
		return false;
	return around != s->interpreter + PERL_FIRST_JUMP;
}

/* Looks at one context, and adds what it is, unless the run is not on the stack. */
STEP u32 add_perl_context(struct walk *w, u32 silent)
{
	if (!w)
		return PERL_END;
	struct perl_walk *s = &w->languages.perl;
	struct perl_words *v = &w->script.perl;
	s->met = 0;
	if (!s->info)
		return PERL_END;
	if (s->left == 0) {
		perl_enter(s, v, s->previous);
		if (!s->info && !s->broken && !s->ended && !silent)
			add_perl_main(w, s);
		s->ended = 0;
		return PERL_END;
	}
	s->left--;
	if (READ_USER(v->context, sizeof(v->context), s->contexts + s->left * PERL_CONTEXT_BYTES))
		return perl_broken(s);
	u64 kind = v->context[PERL_TYPE] & PERL_TYPE_MASK;
	if (kind >= PERL_IS_SUB && kind <= PERL_IS_EVAL && s->left >= s->subs) {
		s->position = v->context[PERL_OLD_POSITION];
		return PERL_MORE;
	}
	bool last = v->context[PERL_RETURN] == 0;
	if (s->ended && !(kind == PERL_IS_EVAL && last)) { /* it is of the next run */
		s->left++;
		s->ended = 0;
		return PERL_END;
	}
	switch (kind) {
	case PERL_IS_SUB:
	case PERL_IS_FORMAT:
		if (!silent && add_perl_sub(w, s))
			return perl_broken(s);
		s->position = v->context[PERL_OLD_POSITION];
		s->ended = last; /* an eval of the same call may follow */
		return PERL_MORE;
	case PERL_IS_EVAL:
		if (!(v->context[PERL_TYPE] & PERL_IS_TRY)) {
			s->kind = PERL_KIND_EVAL;
			s->start_line = 0;
			s->stash = 0;
			s->name = v->context[PERL_FILE_NAME];
			if (!silent)
				push_perl(w, s, s->interpreter, PERL_EVAL_OP(v->context[PERL_TYPE]));
			s->position = v->context[PERL_OLD_POSITION];
			s->ended = last;
		}
		return !s->ended && perl_is_protected(w, s) ? PERL_END : PERL_MORE;
	}
	return PERL_MORE;
}

/* Looks at one of the contexts that a native frame was running, if it is a
 * run, and tells whether there are more. */
STEP u32 add_perl(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct perl_walk *s = &w->languages.perl;
	if (!w->languages.adding) {
		struct perl_process *p = perl_process_of(w->owner);
		if (!p || w->languages.offset < p->run.start || w->languages.offset >= p->run.end)
			return 0;
		if (!(w->languages.begun & RUNS(LANGUAGE_PERL))) {
			w->languages.begun |= RUNS(LANGUAGE_PERL);
			s->ended = 0;
			perl_begin(s, &w->script.perl, p);
			if (w->languages.before == WALKED_WITH_FRAME_MISSING)
				return 0;
			s->skips = w->languages.before == WALKED_WITH_FRAME_LEFT;
		}
		if (!s->info && !s->broken) {
			if (walk_again(w, WALKED_WITH_FRAME_MISSING))
				return 0;
			perl_broken(s);
		}
	}
	bool more = add_perl_context(w, s->skips) == PERL_MORE;
	perl_photograph(w);
	w->languages.adding = more || (s->skips && s->info);
	if (!more)
		s->skips = 0; /* the next contexts are the run's */
	return 0;
}

/* Whether a walk that ended has seen all contexts. */
static __always_inline u32 end_perl(struct walk *w)
{
	struct perl_walk *s = &w->languages.perl;
	if (s->info && walk_again(w, WALKED_WITH_FRAME_LEFT))
		return 0;
	return s->info || s->broken ? END_UNSUPPORTED : END_COMPLETE;
}

#endif
