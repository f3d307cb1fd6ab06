/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* How a walk adds frames to its stack, native ones and those of languages. */
#ifndef ATYS_FRAMES_H
#define ATYS_FRAMES_H

#include "tables.h"

#define HASH_BEGINS 0x61747973 /* so that an empty stack is not hash 0, which means none */

static __always_inline u64 mix(u64 hash, u64 value)
{
	hash ^= value;
	hash *= 0x9E3779B97F4A7C15ull;
	return hash ^ (hash >> 29);
}

static __always_inline void push_frame(struct walk *w, u64 frame)
{
	u32 at = w->count;
	OPAQUE(at);
	at &= MAX_FRAMES;
	OPAQUE(at);
	if (at >= MAX_FRAMES)
		return;
	w->frames[at] = frame;
	w->count = at + 1;
	w->hash = mix(w->hash, frame);
}

#ifdef WALKS_LANGUAGES
#define FRAME_LANGUAGE (12ull << 60)
#define LANGUAGE_WHAT ((1ull << 56) - 1)

static __always_inline void push_language_frame(struct walk *w, u32 kind, u64 what, u64 where)
{
	u32 at = w->count;
	OPAQUE(at);
	at &= MAX_FRAMES;
	OPAQUE(at);
	if (at + 1 >= MAX_FRAMES)
		return;
	u64 frame = FRAME_LANGUAGE | (u64)(kind & 15) << 56 | (what & LANGUAGE_WHAT);
	w->frames[at] = frame;
	w->frames[at + 1] = where;
	w->count = at + 2;
	w->hash = mix(mix(w->hash, frame), where);
}

/* Walks once more from the innermost frame. A runtime lists the frame of a call
 * before the native frame that runs it begins, and drops it before that ends:
 * in between there is one too many, or one too few, which shows where the stack
 * or the list ends. The second walk knows, and starts with the right one. */
static __always_inline bool walk_again(struct walk *w, enum walked_before because)
{
	if (w->languages.before)
		return false;
	w->languages.before = because;
	w->languages.begun = 0;
	w->languages.adding = 0;
	w->languages.cut = 0;
	w->ip = w->languages.ip;
	w->sp = w->regs[7];
	w->bp = w->regs[6];
	w->bp_lost = 0;
	w->is_return = 0;
	w->count = 0;
	w->hash = HASH_BEGINS;
	return true;
}
#endif

#endif
