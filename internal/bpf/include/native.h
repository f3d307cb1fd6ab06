/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* One step of a walk through native frames, by rows made from .eh_frame and its
 * kin (package unwind/cfi), without frame pointers.
 *
 *   pc -> mapping of the process -> executable -> directory -> slot -> row -> caller
 *
 * One frame costs one global function call, so the verifier proves the step once
 * instead of 127 times. */
#ifndef ATYS_NATIVE_H
#define ATYS_NATIVE_H

#include "frames.h"
#include "unwind_rules.h"
#ifdef WALKS_CURRENT
#include "areas.h"
#endif

/* Finds the mapping that holds pc: mostly the one that held the last pc. */
static __always_inline struct mapping *find_mapping(struct walk *w, struct mappings *all, u64 pc)
{
	u32 at = w->hint;
	OPAQUE(at);
	at &= MAX_MAPPINGS - 1;
	struct mapping *m = &all->m[at];
	if (pc >= m->start && pc < m->end && at - w->process.first < w->process.count)
		return m;

	u32 base = w->process.first, len = w->process.count;
	for (int i = 0; i < 17 && len > 1; i++) {
		u32 half = len >> 1, probe = base + half;
		OPAQUE(probe);
		if (all->m[probe & (MAX_MAPPINGS - 1)].start <= pc)
			base = probe;
		len -= half;
	}
	OPAQUE(base);
	base &= MAX_MAPPINGS - 1;
	m = &all->m[base];
	if (w->process.count == 0 || pc < m->start || pc >= m->end)
		return 0;
	w->hint = base;
	return m;
}

/* What find_rule gives where it has no rule: types that no row has. */
#define RULE_MISSING 14u /* ask for the chunk */
#define RULE_REPLACED 15u /* what was read is not of this executable any more */

/* Finds the chunk that has the rule for a file offset. */
static __always_inline struct cell *find_cell(struct cells *directory, u32 base, u32 len, u32 offset)
{
	for (int i = 0; i < 18 && len > 1; i++) {
		u32 half = len >> 1, probe = base + half;
		OPAQUE(probe);
		if (directory->c[probe & (MAX_CELLS - 1)].start <= offset)
			base = probe;
		len -= half;
	}
	OPAQUE(base);
	return &directory->c[base & (MAX_CELLS - 1)];
}

/* Finds the row that holds at a file offset in a slot: 8 steps. Word 0 is the
 * header, and word 1 begins at or before the offset. */
static __always_inline u64 find_row(struct rows *table, u32 slot, u32 offset)
{
	u32 mask = rows_mask, base = slot;
#pragma unroll
	for (int half = 128; half; half >>= 1) {
		u32 probe = base + half;
		OPAQUE(probe);
		/* branch-free: the mask is all ones where the row starts after offset */
		u64 after = (u64)((s64)((u64)offset - (table->r[probe & mask] >> 32)) >> 63);
		OPAQUE(after);
		base += half & ~(u32)after;
	}
	OPAQUE(base);
	return table->r[base & mask];
}

/* Finds the rule for a file offset, and marks its chunk as used. Generations are
 * read before what they are of, and again after it: package unwind/paging. */
static __always_inline u32 find_rule(struct walk *w, struct executable *e, u32 generation, u64 wide)
{
	u32 offset = wide;
	struct cells *directory = CELLS();
	struct rows *table = ROWS();
	u32 first = READ_ONCE(e->cell), len = READ_ONCE(e->cells);
	if (!directory || !table || wide >> 32 || !len)
		return UNWIND_GAP << UNWIND_TYPE_SHIFT;
	struct cell *cell = find_cell(directory, first, len, offset);
	u32 entry = READ_ONCE(cell->entry);
	u64 row = 0;
	if (cell->start > offset) {
		entry = 1; /* code before the first row */
	} else if (entry & CELL_SLOT) {
		u32 at = (entry & CELL_SLOT) << SLOT_SHIFT;
		OPAQUE(at);
		struct slot_header *header = (struct slot_header *)&table->r[at & rows_mask];
		if (header->used != w->tick)
			header->used = w->tick;
		row = find_row(table, at, offset);
		if ((READ_ONCE(header->generation) ^ entry >> 16) & 0xffff)
			return RULE_REPLACED << UNWIND_TYPE_SHIFT;
	}
	if (READ_ONCE(e->generation) != generation)
		return RULE_REPLACED << UNWIND_TYPE_SHIFT;
	if (entry & CELL_SLOT)
		return (u32)row;
	w->missing = offset;
	w->cell = cell - directory->c;
	return RULE_MISSING << UNWIND_TYPE_SHIFT | (entry & CELL_EVICTED);
}

/* A frame kept by frame pointer: caller's rbp and return address lie at rbp.
 * That is above rsp, unless the rule says that the stack was left: Go's
 * goroutines lie below its threads' stacks. */
static __always_inline u32 step_frame_pointer(struct walk *w, bool leaves_stack)
{
	u64 pair[2];
	if ((w->bp < w->sp && !leaves_stack) || (w->bp & 7) || w->bp_lost)
		return END_NO_UNWIND;
	if (READ_USER(pair, sizeof(pair), w->bp))
		return END_UNREADABLE;
	w->sp = w->bp + 16;
	w->bp = pair[0];
	w->ip = pair[1];
	w->is_return = 1;
	return w->ip ? 0 : END_COMPLETE;
}

/* The kernel saved all registers below a signal handler: struct rt_sigframe,
 * uc.uc_mcontext at 40, rbp at its 80, rsp at 120, rip at 128. */
static __always_inline u32 step_signal(struct walk *w)
{
	u64 saved[7]; /* rbp rbx rdx rax rcx rsp rip */
	if (READ_USER(saved, sizeof(saved), w->sp + 40 + 80))
		return END_UNREADABLE;
	w->bp = saved[0];
	w->sp = saved[5];
	w->ip = saved[6];
	w->is_return = 0;
	w->bp_lost = 0;
	return 0;
}

/* The canonical frame address a rule gives; *end is set where it cannot be had. */
static __always_inline u64 frame_address(struct walk *w, u32 rule, u32 *end)
{
	u32 field = rule & UNWIND_CFA_MASK;
	u64 high = (u64)(field >> UNWIND_HIGH_SHIFT);
	s64 low = (s64)(__s16)(field & UNWIND_LOW_MASK) << 3;
	u64 cfa = 0;

	switch (rule >> UNWIND_TYPE_SHIFT) {
	case UNWIND_SP:
		return w->sp + ((u64)field << 3);
	case UNWIND_PLT:
		return w->sp + ((w->ip & 15) >= field ? 16 : 8);
	case UNWIND_FORK:
		if (w->count == 1 && w->regs[0] == 0)
			*end = END_COMPLETE;
		return w->sp + ((u64)field << 3);
	case UNWIND_BP:
		if (w->bp_lost)
			break;
		return w->bp + ((u64)field << 3);
	case UNWIND_BP_DEREF:
		if (w->bp_lost)
			break;
		if (READ_USER(&cfa, 8, w->bp + low))
			*end = END_UNREADABLE;
		return cfa + (high << 3);
	case UNWIND_SP_DEREF:
		if (READ_USER(&cfa, 8, w->sp + low))
			*end = END_UNREADABLE;
		return cfa + (high << 3);
	case UNWIND_LEAF_REG:
		if (w->count != 1)
			break;
		return w->regs[high & 15] + low;
	case UNWIND_RETURN_REG:
		if (w->count != 1)
			break;
		return w->sp + low;
	case UNWIND_GAP:
		*end = END_NO_UNWIND;
		return 0;
	}
	*end = END_UNSUPPORTED;
	return 0;
}

/* Recovers the caller's rbp and return address from a frame at cfa. */
static __always_inline u32 step_to_caller(struct walk *w, u32 rule, u64 cfa)
{
	u32 saved = (rule >> UNWIND_RBP_SHIFT) & UNWIND_RBP_MASK;
	u64 pair[2];
	if (saved == 2) { /* by far the most frequent: one read for both */
		if (READ_USER(pair, sizeof(pair), cfa - 16))
			return END_UNREADABLE;
		w->bp = pair[0];
		w->bp_lost = 0;
	} else {
		if (READ_USER(&pair[1], 8, cfa - 8))
			return END_UNREADABLE;
		if (saved == UNWIND_RBP_LOST || (saved == UNWIND_RBP_AT_RBP && w->bp_lost)) {
			w->bp_lost = 1;
		} else if (saved != UNWIND_RBP_SAME) {
			u64 at = saved == UNWIND_RBP_AT_RBP ? w->bp : cfa - ((u64)saved << 3);
			if (READ_USER(&w->bp, 8, at))
				return END_UNREADABLE;
			w->bp_lost = 0;
		}
	}
	if (rule >> UNWIND_TYPE_SHIFT == UNWIND_RETURN_REG)
		pair[1] = w->regs[(rule >> UNWIND_HIGH_SHIFT) & UNWIND_HIGH_MASK];
	if (pair[1] == 0 || (cfa == w->sp && pair[1] == w->ip))
		return END_CORRUPT; /* known ends have rules of their own */
	w->ip = pair[1];
	w->sp = cfa;
	w->is_return = 1;
	return 0;
}

#ifdef WALKS_CURRENT
/* What user space did not tell, the kernel may, where the walk is of the
 * current thread: each CPU has a cell at the end of the mappings for it. */
static __always_inline struct mapping *find_unknown(struct walk *w, struct mappings *all)
{
	u32 cell = MAX_MAPPINGS - 1 - (bpf_get_smp_processor_id() & (AREA_CELLS - 1));
	OPAQUE(cell);
	struct mapping *m = &all->m[cell & (MAX_MAPPINGS - 1)];
	u64 pc = w->ip - w->is_return;
	if (w->by_area && pc >= m->start && pc < m->end)
		return m; /* the last frame's */
	return find_area(w, m) ? m : 0;
}
#endif

/* Stores the frame at w->ip and goes to its caller. 0: go on; else the end. */
STEP u32 step(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct mappings *all = MAPPINGS();
	struct executables *table = EXECUTABLES();
	if (!all || !table)
		return END_CORRUPT;
	if (w->count >= MAX_FRAMES)
		return END_TOO_DEEP;

	u64 pc = w->ip - w->is_return;
	struct mapping *m = find_mapping(w, all, pc);
#ifdef WALKS_CURRENT
	if (!m)
		m = find_unknown(w, all);
#endif
	if (!m) {
		push_frame(w, FRAME_UNMAPPED | (pc & ADDRESS_BITS));
		return END_NO_MAPPING;
	}
	u32 id = m->executable;
#ifdef WALKS_LANGUAGES
	if (id == 0 && w->process.languages & MAKES_CODE) {
		w->languages.code = m->start;
		w->languages.code_end = m->end;
		w->languages.code_flags = m->flags;
		return STEP_IN_CODE_MADE;
	}
#endif
	if (id == 0) {
		push_frame(w, FRAME_ANONYMOUS | (pc & ADDRESS_BITS));
		return m->flags & MAPPING_FRAME_POINTERS ? step_frame_pointer(w, false) : END_NO_UNWIND;
	}
	u64 offset = pc - m->start + m->offset;
	u32 at = id;
	OPAQUE(at);
	struct executable *e = &table->e[at & (MAX_EXECUTABLES - 1)];
	push_frame(w, (u64)(id | e->identity) << FRAME_OFFSET_BITS | (offset & ((1ull << FRAME_OFFSET_BITS) - 1)));

	u32 generation = READ_ONCE(e->generation);
	if (!(READ_ONCE(e->flags) & EXECUTABLE_LOADED)) {
		w->hint = id; /* tells the caller what to ask for */
		w->cell = MAX_CELLS;
		return e->flags & EXECUTABLE_EVICTED ? END_EVICTED : e->flags & EXECUTABLE_NO_ROOM ? END_NO_ROOM : END_NOT_LOADED;
	}
#ifdef WALKS_LANGUAGES
	w->languages.runs = e->flags & w->process.languages;
	w->languages.offset = offset;
	w->languages.sp = w->sp;
	w->languages.bp = w->bp;
#endif
	u32 rule = find_rule(w, e, generation, offset);
	switch (rule >> UNWIND_TYPE_SHIFT) {
	case UNWIND_END:
		return END_COMPLETE;
	case UNWIND_SIGNAL:
		return step_signal(w);
	case UNWIND_FRAME_POINTER:
		return step_frame_pointer(w, true);
	case UNWIND_GAP:
		if (e->flags & EXECUTABLE_FRAME_POINTERS)
			return step_frame_pointer(w, false);
		return END_NO_UNWIND;
	case RULE_MISSING:
		w->hint = id;
		return rule & CELL_EVICTED ? END_EVICTED : END_NOT_LOADED;
	case RULE_REPLACED:
		w->hint = 0; /* the next walk asks */
		return END_EVICTED;
	}
	u32 end = 0;
	u64 cfa = frame_address(w, rule, &end);
	return end ? end : step_to_caller(w, rule, cfa);
}

/* Starts a walk at the user registers of the current thread. */
static __always_inline void start_walk(struct walk *w, const struct pt_regs *r)
{
	w->ip = r->ip;
	w->sp = r->sp;
	w->bp = r->bp;
	w->regs[0] = r->ax;
	w->regs[1] = r->dx;
	w->regs[2] = r->cx;
	w->regs[3] = r->bx;
	w->regs[4] = r->si;
	w->regs[5] = r->di;
	w->regs[6] = r->bp;
	w->regs[7] = r->sp;
	w->regs[8] = r->r8;
	w->regs[9] = r->r9;
	w->regs[10] = r->r10;
	w->regs[11] = r->r11;
	w->regs[12] = r->r12;
	w->regs[13] = r->r13;
	w->regs[14] = r->r14;
	w->regs[15] = r->r15;
	w->hash = HASH_BEGINS;
	w->count = 0;
	w->is_return = 0;
	w->hint = 0;
	w->tick = TICK();
	w->bp_lost = 0;
	w->by_area = 0;
#ifdef WALKS_LANGUAGES
	w->languages = (struct languages){.ip = r->ip};
#endif
}

#endif
