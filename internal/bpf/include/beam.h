/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Erlang functions: BEAM 25 with its JIT.
 *
 * Code of the JIT runs on the stack of an Erlang process, which is at the upper
 * end of its heap: rsp points there, r13 at the process. Words there are terms,
 * whose lowest two bits are never both 0, and return addresses, which are
 * multiples of 4. The oldest one leads to where processes end.
 *
 * What is written in C runs on the scheduler's own stack. Which Erlang process
 * called it is not known there: such a stack ends at the function that did, or
 * with the scheduler that is looking for a process to run.
 *
 *   where   the pc; package lang/beam finds the function that holds it
 */
#ifndef ATYS_BEAM_H
#define ATYS_BEAM_H

#include "processes.h"

#define BEAM_CHUNKS 16
#define BEAM_CHUNK 64 /* words that are read at a time */

/* A BEAM, as package lang/beam found it. */
struct beam_process {
	u64 bottom; /* where the oldest function of each Erlang process returns to */
	u64 idle;   /* where the scheduler returns to when it found a process; 0: not known */
	u32 heap;   /* in an Erlang process: begin and end of its heap and stack */
	u32 stop;   /* where its stack was left */
};

PROCESSES_OF(beam, LANGUAGE_BEAM)

struct beam_heap {
	u64 begin, end, abandoned, words;
};

/* Adds the functions in a chunk of the stack at w->sp, which ends at end. */
STEP u32 add_beam_chunk(struct walk *w, u64 end, u64 bottom)
{
	if (!w)
		return END_CORRUPT;
	u64 words = (end - w->sp) >> 3;
	if (words > BEAM_CHUNK)
		words = BEAM_CHUNK;
	u32 size = words << 3;
	OPAQUE(size);
	size &= 1023;
	if (size > BEAM_CHUNK * 8 || READ_USER(w->dotnet.before, size, w->sp))
		return END_UNREADABLE;
	for (u32 i = 0; i < BEAM_CHUNK; i++) {
		if (i >= words)
			break;
		u64 word = w->dotnet.before[i];
		if (word == bottom)
			return END_COMPLETE;
		if (word & 3 || word - w->languages.code >= w->languages.code_end - w->languages.code)
			continue;
		push_language_frame(w, LANGUAGE_BEAM, 0, word - 1);
	}
	w->sp += words << 3;
	return w->sp < end ? 0 : END_CORRUPT; /* bottom is the oldest word of all */
}

/* Walks the stack of an Erlang process from code of the JIT on. */
STEP u32 step_beam(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	u32 owner = w->owner;
	struct beam_process *p = beam_process_of(owner);
	if (p && w->is_return && w->ip == p->idle)
		return END_COMPLETE;
	push_language_frame(w, LANGUAGE_BEAM, 0, w->ip - w->is_return);
	if (!p)
		return END_NO_UNWIND;
	if (w->is_return)
		return END_UNSUPPORTED;
	struct beam_heap heap;
	u64 process = w->regs[13];
	if (process & 7 || READ_USER(&heap, sizeof(heap), process + p->heap))
		return END_NO_UNWIND;
	if (heap.begin & 7 || heap.end <= heap.begin || (heap.end - heap.begin) >> 3 != heap.words)
		return END_NO_UNWIND;
	if (w->sp - heap.begin >= heap.end - heap.begin && READ_USER(&w->sp, 8, process + p->stop))
		return END_UNREADABLE;
	if (w->sp & 7 || w->sp - heap.begin >= heap.end - heap.begin)
		return END_NO_UNWIND;
	u64 bottom = p->bottom;
	for (int i = 0; i < BEAM_CHUNKS; i++) {
		u32 end = add_beam_chunk(w, heap.end, bottom);
		if (end)
			return end;
	}
	return END_TOO_DEEP;
}

#endif
