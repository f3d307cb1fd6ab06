/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Walks the part of a virtual thread's stack that lies in the heap.
 *
 * A virtual thread that waits has its frames copied to a StackChunk. When it
 * goes on, the newest ones are copied back to the stack of a carrier thread,
 * and the oldest of these returns to the JVM's return barrier instead of its
 * caller, which lies in the chunk still:
 *
 *   stack of the carrier                            heap
 *
 *   newest frames of the virtual thread      +-> StackChunk: size, sp, bottom, parent
 *   oldest frame that was copied back        |     words 0 to sp: not used
 *     its return address: the barrier        |     at sp: the barrier's caller
 *   ContinuationEntry (frame of enterSpecial)|     ... its callers, as they lay on the stack
 *     its Continuation ------- tail ---------+     at bottom: the end
 *   frames of the carrier                        parent: a StackChunk with older frames, or none
 *
 * Frames in a chunk are as on the stack, but rbp as a frame saved it counts, in
 * words, from where it is saved, if it is the frame pointer of an interpreted
 * caller (src/hotspot/share/runtime/stackChunkFrameStream.inline.hpp).
 *
 * The thread that is walked does not change its chunk meanwhile; a collection
 * of garbage may. So a chunk counts only while its header is a StackChunk's
 * that is not being moved, and each of its frames must be of code that is
 * there, inside the chunk, the last ending where the chunk's frames do. Else
 * the stack is cut here and says so. */
#ifndef ATYS_STACK_CHUNK_H
#define ATYS_STACK_CHUNK_H

#include "hotspot_code.h"

#define CHUNK_LARGEST (1u << 24) /* words */
#define ENTRY_SEARCHED 16	 /* places where a ContinuationEntry may begin */
#define CHUNKS_EMPTY 4		 /* one after the other that are passed */
#define MARK_MOVED 3		 /* lowest bits of the header of an object that is being moved */

/* A word in a chunk that counts in words from where it lies. */
static __always_inline u64 in_chunk(u64 at, u64 words)
{
	return at + (words << 3);
}

/* Reads a reference to an object, 0 where there is none; false: it cannot be read. */
static __always_inline bool read_reference(struct walk *w, u64 at, u64 *object)
{
	const struct hotspot_process *p = &w->hotspot.process;
	u32 compressed = 0;
	*object = 0;
	if (!p->compressed)
		return !READ_USER(object, 8, at);
	if (READ_USER(&compressed, 4, at))
		return false;
	if (compressed)
		*object = p->references + ((u64)compressed << (p->reference_shift & 7));
	return true;
}

/* Goes on with the carrier's frames, from what enterSpecial's keeps at its end. */
static __always_inline u32 leave_entry(struct walk *w)
{
	u64 pair[2], end = w->hotspot.entry + sizeof(struct continuation_entry);
	if (READ_USER(pair, sizeof(pair), end - sizeof(pair)))
		return END_UNREADABLE;
	w->bp = pair[0];
	w->ip = pair[1];
	w->sp = end;
	w->bp_lost = 0;
	w->is_return = 1;
	return 0;
}

/* Tells that older frames of a virtual thread are missing, and goes on with
 * those of its carrier where it is known where they begin. */
static __always_inline u32 cut_chunk(struct walk *w)
{
	push_java(w, HOTSPOT_CUT, 0, 0);
	w->languages.cut = END_PARKED;
	w->hotspot.chunk = 0;
	return w->hotspot.entry ? leave_entry(w) : END_PARKED;
}

/* Goes to the newest frame in a chunk; false: it is none, or makes no sense. */
STEP bool open_chunk(struct walk *w, u64 chunk)
{
	if (!w)
		return false;
	struct hotspot_walk *h = &w->hotspot;
	const struct hotspot_process *p = &h->process;
	u64 mark = 0, class = 0, pair[2];
	u32 size = 0, sp = 0, bottom = 0;
	if (READ_USER(&mark, 8, chunk) || (mark & 3) == MARK_MOVED || READ_USER(&class, 8, chunk + p->class_at) ||
	    (class & p->class_mask) != p->chunk_class || READ_USER(&size, 4, chunk + p->chunk_size) ||
	    READ_USER(&sp, 4, chunk + p->chunk_sp) || READ_USER(&bottom, 4, chunk + p->chunk_bottom) ||
	    size > CHUNK_LARGEST || bottom > size || sp > bottom)
		return false;
	u64 words = chunk + p->chunk_words;
	h->chunk = chunk;
	h->bottom = words + 8 * (u64)bottom;
	w->sp = words + 8 * (u64)sp;
	if (sp == bottom)
		return true; /* it is empty: its parent is next */
	if (READ_USER(pair, sizeof(pair), w->sp - 16) || !code_heap(w, pair[1]))
		return false;
	w->bp = in_chunk(w->sp - 16, pair[0]);
	w->ip = pair[1];
	w->bp_lost = 0;
	return true;
}

/* Finds the ContinuationEntry above a frame that returns to the barrier, and
 * gives the Continuation; 0: there is none. Between them are the frame's
 * arguments on the stack. */
static __always_inline u64 find_entry(struct walk *w)
{
	struct continuation_entry *e = &w->hotspot.read;
	u64 first = (w->sp + 15) & ~15ull;
	for (int i = 0; i < ENTRY_SEARCHED; i++) {
		u64 at = first + 16 * (u64)i;
		if (READ_USER(e, sizeof(*e), at))
			return 0;
		u64 arguments = 8 * (((u64)e->arguments + 1) & ~1ull);
		if (e->flags == 1 && (arguments == 0 || at - arguments == w->sp) && e->continuation && !(e->continuation & 7) &&
		    code_heap(w, e->back)) {
			w->hotspot.entry = at;
			return e->continuation;
		}
	}
	return 0;
}

/* Goes on from the oldest frame in a chunk: to older ones in its parent, or to
 * enterSpecial's frame, to which the thread's oldest returns. */
STEP u32 leave_chunk(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	u64 parent = 0;
	for (int i = 0; i < CHUNKS_EMPTY; i++) {
		if (!read_reference(w, h->chunk + h->process.chunk_parent, &parent))
			return cut_chunk(w);
		if (!parent)
			break;
		if (!open_chunk(w, parent))
			return cut_chunk(w);
		if (w->sp < h->bottom)
			return 0;
	}
	if (parent || w->ip == h->process.barrier || (w->ip && !code_heap(w, w->ip)))
		return cut_chunk(w);
	h->chunk = 0;
	if (!w->ip)
		return leave_entry(w); /* it was not kept: it is always enterSpecial */
	w->sp = h->entry;
	w->bp_lost = 1;
	return 0;
}

/* Goes on from the return barrier to the frames in the heap. */
STEP u32 enter_heap(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	h->entry = 0;
	u64 continuation = find_entry(w);
	if (!continuation || !h->process.chunk_words)
		return cut_chunk(w);
	u64 tail = 0;
	if (!read_reference(w, continuation + h->process.continuation_tail, &tail) || !tail || !open_chunk(w, tail))
		return cut_chunk(w);
	h->opened = 1;
	return w->sp < h->bottom ? 0 : leave_chunk(w);
}

/* Whether two places among the frames show the same. */
static __always_inline bool same_frame(struct walk *w, u32 a, u32 b)
{
	OPAQUE(a);
	OPAQUE(b);
	a &= MAX_FRAMES;
	b &= MAX_FRAMES;
	OPAQUE(a);
	OPAQUE(b);
	return a < MAX_FRAMES && b < MAX_FRAMES && w->frames[a] == w->frames[b] && w->frames[a + 1] == w->frames[b + 1];
}

/* Judges a frame in a chunk that was left. The first is looked at closely: a
 * thread that is about to wait has its frames in the chunk and still on the
 * stack, the newest in the chunk being that which called the JVM to copy them. */
static __always_inline u32 after_chunk_frame(struct walk *w, u64 sp, u32 end)
{
	struct hotspot_walk *h = &w->hotspot;
	if (end == END_CORRUPT && !w->ip && w->sp == h->bottom)
		end = 0; /* the oldest: the JVM does not always keep where it returns to */
	if (end || w->sp <= sp || w->sp > h->bottom || (w->sp < h->bottom && !code_heap(w, w->ip)))
		return cut_chunk(w);
	u32 met = w->count - 2;
	bool twice = h->opened && h->calls && (same_frame(w, met, h->first) || same_frame(w, met, h->first + 2));
	h->opened = 0;
	if (twice)
		return cut_chunk(w);
	return w->sp < h->bottom ? 0 : leave_chunk(w);
}

#endif
