/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Walks frames of Java: code of the interpreter, of both compilers, and stubs.
 *
 *   pc -> code heap -> segment map -> block -> code blob -> how large its frame is
 *
 * All layouts come from the tables that the process's own libjvm publishes
 * (gHotSpotVMStructs; package lang/hotspot reads them), never from a version.
 * What no table tells is the interpreter's frame, the same in JDK 9 to 25 and a
 * word shorter in 8 (src/hotspot/cpu/x86/frame_x86.hpp), and what a compiled function looks like
 * before its frame is whole and after it is gone: see hotspot_leaf.h. */
#ifndef ATYS_HOTSPOT_H
#define ATYS_HOTSPOT_H

#include "hotspot_code.h"
#include "hotspot_leaf.h"
#include "stack_chunk.h"

/* Leaves code that has no frame of its own, or none yet, or no longer. moved:
 * it may have moved the caller's words, or taken the return address off. */
static __always_inline u32 leave_frameless(struct walk *w, bool moved)
{
	u64 top[1], rax = leaf_register(w, RAX), r13 = leaf_register(w, R13);
	if (READ_USER(top, sizeof(top), w->sp))
		return END_UNREADABLE;
	u64 above = w->sp + 8, back = top[0];
	if (moved && !w->is_return && !code_heap(w, back)) {
		back = code_heap(w, rax) ? rax : code_heap(w, r13) ? r13 : back;
		above = back == top[0] ? above : w->sp;
	}
	w->ip = back;
	w->sp = moved ? sender(w, above) : above;
	w->is_return = 1;
	return back ? 0 : END_CORRUPT;
}

/* Leaves a frame whose words are known to end at top, the caller's rbp and the
 * return address being the last. */
static __always_inline u32 leave_frame(struct walk *w, u64 top, u64 caller)
{
	u64 pair[2];
	if (READ_USER(pair, sizeof(pair), top - 16))
		return END_UNREADABLE;
	w->bp = w->hotspot.chunk ? in_chunk(top - 16, pair[0]) : pair[0];
	w->ip = pair[1];
	w->sp = caller;
	w->bp_lost = 0;
	w->is_return = 1;
	return pair[1] ? 0 : END_CORRUPT;
}

/* What a symbol is known by: its address, and how it begins, which holds a
 * random number that each symbol gets. 0: it cannot be read. */
static __always_inline u64 symbol_identity(struct walk *w, u64 symbol)
{
	u64 begins;
	if (READ_USER(&begins, 8, symbol & ~3ull))
		return 0;
	return mix(symbol & ~3ull, begins & w->hotspot.process.symbol_mask);
}

/* The same of the symbol in a slot of a pool. */
static __always_inline u64 slot_identity(struct walk *w, u64 pool, u16 index)
{
	u64 symbol;
	if (READ_USER(&symbol, 8, pool + w->hotspot.process.pool_slots + 8 * (u64)index))
		return 0;
	return symbol_identity(w, symbol);
}

/* Which slot has the name of a class's file; 0: it has none. */
static __always_inline u16 source_slot(struct walk *w, u64 pool, u64 holder)
{
	const struct hotspot_process *p = &w->hotspot.process;
	u64 at = p->pool_source ? pool + p->pool_source : holder + p->klass_source;
	u16 index;
	if (!(p->pool_source | p->klass_source) || READ_USER(&index, 2, at))
		return 0;
	return index;
}

/* What tells a Method from another that lies where it was, once its class is
 * unloaded: the symbols of its name, its class's and its file's. */
static __always_inline u64 method_identity(struct walk *w, u64 method, u64 *constant)
{
	const struct hotspot_process *p = &w->hotspot.process;
	u64 pool, holder, class;
	u16 index;
	if (READ_USER(constant, 8, method + p->method_constant) || READ_USER(&pool, 8, *constant + p->constant_pool) ||
	    READ_USER(&index, 2, *constant + p->constant_name) || READ_USER(&holder, 8, pool + p->pool_holder) ||
	    READ_USER(&class, 8, holder + p->klass_name))
		return 0;
	u16 source = source_slot(w, pool, holder);
	u64 names = mix(slot_identity(w, pool, index), symbol_identity(w, class));
	return mix(names, source ? slot_identity(w, pool, source) : 0) >> HOTSPOT_PLACE_BITS;
}

/* Adds an interpreted function. What is remembered of the one before makes
 * recursion cheap. */
static __always_inline void push_interpreted(struct walk *w, u64 method, u64 saved, u64 live)
{
	struct hotspot_walk *h = &w->hotspot;
	if (h->method != method) {
		h->method = method;
		h->constant = 0;
		h->identity = method_identity(w, method, &h->constant);
	}
	u64 at = live - h->constant < HOTSPOT_PLACES ? live : saved;
	u64 place = at - h->constant < HOTSPOT_PLACES ? at - h->constant : 0;
	push_java(w, HOTSPOT_INTERPRETED, method, h->identity << HOTSPOT_PLACE_BITS | place);
}

/* Walks a frame of the interpreter:
 *
 *   rbp-64 bytecode | rbp-56 locals | ... | rbp-24 Method* | rbp-16 | rbp-8 caller's rsp | rbp | return address
 *
 * In 8 bytecode and locals lie a word higher. The innermost frame's bytecode
 * pointer is in r13. In a StackChunk what points into the stack is relative,
 * in words. */
STEP u32 hotspot_interpreted(struct walk *w)
{
	u64 f[10]; /* from rbp-64 */
	if (!w)
		return END_CORRUPT;
	bool leaf = !w->is_return;
	u64 bp = w->bp, lowest = leaf ? w->sp + 64 : w->sp;
	bool whole = !w->bp_lost && !(bp & 7) && bp >= lowest && !READ_USER(f, sizeof(f), bp - 64);
	bool oldest = false;
	if (whole && w->hotspot.chunk) {
		oldest = in_chunk(bp, f[1]) + 8 >= w->hotspot.bottom; /* its locals end where the frames do */
		f[7] = oldest ? w->hotspot.bottom : in_chunk(bp, f[7]);
		f[8] = in_chunk(bp, f[8]);
	}
	if (whole)
		/* a method handle may have dropped a word between the caller's and ours */
		whole = f[7] >= bp + 8 && f[7] - bp < HOTSPOT_LEAF_ROOM * 16 && !(f[7] & 7) && f[5] && !(f[5] & 7) && (f[9] || oldest);
	if (whole) {
		push_interpreted(w, f[5], w->hotspot.process.no_mirror ? f[1] : f[0], leaf_register(w, R13));
		w->sp = f[7];
		w->bp = f[8];
		w->ip = f[9];
		w->bp_lost = 0;
		w->is_return = 1;
		return 0;
	}
	if (!leaf)
		return END_NO_UNWIND;
	if (bp >= w->sp && bp - w->sp < 64 && !(bp & 7) && !w->bp_lost) { /* its frame is being made */
		u64 back;
		if (!READ_USER(&back, 8, bp + 8) && code_heap(w, back))
			return leave_frame(w, bp + 16, sender(w, bp + 16));
	}
	return leave_frameless(w, true);
}

/* Finds the blob that holds pc, and reads what walks need of it. */
STEP u32 hotspot_find(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	u64 pc = w->ip, name = 0;
	if (pc >= h->start && pc < h->end)
		return 0; /* the frame before was in it */
	const struct hotspot_heap *heap = code_heap(w, pc);
	if (!heap)
		return END_NO_UNWIND;
	u64 segment = (pc - heap->low) >> (heap->shift & 31);
	u8 back = 255;
	for (int i = 0; i < HOTSPOT_HOPS; i++) {
		if (READ_USER(&back, 1, heap->segments + segment))
			return END_UNREADABLE;
		if (back == 0 || back == 255)
			break;
		segment -= back;
	}
	if (back)
		return END_NO_UNWIND; /* that memory is free */
	u64 blob = heap->low + (segment << (heap->shift & 31)) + h->process.header;
	h->end = 0;
	if (READ_USER(h->blob, HOTSPOT_HEAD, blob) ||
	    READ_USER((char *)h->blob + HOTSPOT_HEAD, HOTSPOT_TAIL, blob + h->process.tail) ||
	    READ_USER(&name, 8, blob64(w, h->process.name)))
		return END_UNREADABLE;
	h->name = name;
	h->start = blob;
	h->code = h->process.code_relative ? blob + blob32(w, h->process.code) : blob64(w, h->process.code);
	h->end = blob + blob32(w, h->process.size);
	return 0;
}

/* Leaves the innermost frame where it is not whole. */
static __always_inline u32 leave_leaf(struct walk *w, enum hotspot_leaf_state state, u64 top)
{
	u64 back;
	switch (state) {
	case LEAF_NONE:
		if (READ_USER(&back, 8, w->sp))
			return END_UNREADABLE;
		w->sp += 8;
		break;
	case LEAF_RBP_LIVE:
		if (READ_USER(&back, 8, top - 8))
			return END_UNREADABLE;
		w->sp = top;
		break;
	case LEAF_PUSHED:
		return leave_frame(w, w->sp + 16, w->sp + 16);
	default:
		return leave_frame(w, top, top);
	}
	w->ip = back;
	w->is_return = 1;
	return back ? 0 : END_CORRUPT;
}

static __always_inline bool interpreted(struct walk *w, u64 pc)
{
	return pc >= w->hotspot.process.interpreter && pc < w->hotspot.process.interpreter_end;
}

/* What compiled code has pushed onto its frame, in bytes: comparing strings, or
 * searching one in another, keeps a few words there. Then no return address
 * lies where the frame should end; the first one above that a call left does,
 * or one of the interpreter, which comes back elsewhere than it called. */
#define HOTSPOT_PUSHED 8
static __always_inline u32 pushed_above(struct walk *w, u64 top)
{
	u64 back[HOTSPOT_PUSHED + 1];
	u8 call[6];
	if (READ_USER(back, sizeof(back), top - 8) || code_heap(w, back[0]))
		return 0;
	for (u32 i = 1; i <= HOTSPOT_PUSHED; i++) {
		if (interpreted(w, back[i]))
			return 8 * i;
		if (!code_heap(w, back[i]) || READ_USER(call, sizeof(call), back[i] - sizeof(call)))
			continue;
		if (call[1] == 0xe8 || (call[4] == 0xff && (call[5] & 0xf8) == 0xd0))
			return 8 * i;
	}
	return 0;
}

/* Walks a frame of a function that was compiled. */
STEP u32 hotspot_compiled(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	struct hotspot_process *p = &h->process;
	u64 pc = w->ip, at = pc - h->code;
	s32 frame = blob32(w, p->frame_size);
	u32 complete = blob32(w, p->frame_complete);
	u64 top = w->sp + ((u64)(u32)frame << 3);
	if (p->complete_short)
		complete = (s32)(__s16)complete;
	if (w->is_return) {
		u64 deopt = p->deopt_relative ? h->start + blob32(w, p->deopt) : blob64(w, p->deopt);
		u64 deopt_mh = p->deopt_relative ? h->start + blob32(w, p->deopt_mh) : blob64(w, p->deopt_mh);
		if ((pc == deopt || pc == deopt_mh) && !READ_USER(&pc, 8, w->sp + blob32(w, p->orig_pc)))
			at = pc - h->code; /* it returns to be taken apart: where it was is kept apart */
	}
	push_java(w, HOTSPOT_COMPILED, h->start, (u64)blob32(w, p->compile_id) << 32 | (u32)at);
	if (frame <= 0)
		return leave_frameless(w, false);
	enum hotspot_leaf_state state = LEAF_WHOLE;
	if (!w->is_return) {
		if (READ_USER(h->around, sizeof(h->around), w->ip - 4))
			return END_UNREADABLE;
		state = hotspot_state(w, at < complete, (u32)frame << 3);
		if (state == LEAF_WHOLE)
			top += pushed_above(w, top);
	}
	return leave_leaf(w, state, top);
}

/* What the stub that nmethods call at their entry pushes before it makes its frame. */
#define HOTSPOT_COOKIE (~0ull)

/* Leaves a stub by rbp, which it keeps. */
static __always_inline u32 leave_kept(struct walk *w, enum hotspot_leaf_state state)
{
	u32 end = leave_leaf(w, state, w->bp + 16);
	if (end || w->ip != HOTSPOT_COOKIE)
		return end;
	if (READ_USER(&w->ip, 8, w->sp))
		return END_UNREADABLE;
	w->sp += 8;
	return w->ip ? 0 : END_CORRUPT;
}

/* Whether rbp is a stub's own frame's: it lies near, and for stubs that only
 * compiled code calls, that is where they return to. */
static __always_inline bool keeps_rbp(struct walk *w, u64 room, bool anyone)
{
	u64 back = 0;
	if (w->bp_lost || w->bp < w->sp || w->bp - w->sp >= room || w->bp & 7)
		return false;
	return anyone || (!READ_USER(&back, 8, w->bp + 8) && code_heap(w, back));
}

/* How far a stub's frame may reach: SHA-256's is 80 words; and its code. */
#define STUB_SEARCHED 96
#define STUB_LARGEST (1 << 15)

/* What the call goes to that a return address comes from: call rel32, or mov
 * r10, imm64; call r10. 0: there is none. */
static __always_inline u64 called(u64 back)
{
	u8 code[13];
	if (READ_USER(code, sizeof(code), back - sizeof(code)))
		return 0;
	if (code[8] == 0xe8)
		return back + (s64)(s32)operand(code + 9);
	if (code[0] == 0x49 && code[1] == 0xba && code[10] == 0x41 && code[11] == 0xff && code[12] == 0xd2)
		return operand(code + 2) | (u64)operand(code + 6) << 32;
	return 0;
}

/* Leaves a stub that uses rbp for its own ends, as those do that hash and
 * encrypt: by the innermost return address of a call of what this blob holds
 * from pc on back. false: there is none. */
STEP bool leave_called(struct walk *w)
{
	if (!w)
		return false;
	u64 back, kept;
	u8 entry = 0;
	for (u32 i = 0; i < STUB_SEARCHED; i++) {
		u64 at = w->sp + 8 * (u64)i;
		if (READ_USER(&back, 8, at))
			return false;
		if (!code_heap(w, back))
			continue;
		u64 target = called(back);
		if (target < w->hotspot.code || target > w->ip || w->ip - target >= STUB_LARGEST || READ_USER(&entry, 1, target))
			continue;
		if (entry == 0x55 && !READ_USER(&kept, 8, at - 8))
			w->bp = kept; /* it begins with push rbp */
		w->ip = back;
		w->sp = at + 8;
		w->is_return = 1;
		return true;
	}
	return false;
}

/* What code that C1 compiled gave to a stub: two words that it takes off again
 * right after its call. In bytes. */
static __always_inline u64 given(struct walk *w)
{
	u8 code[4];
	if (READ_USER(code, sizeof(code), w->ip))
		return 0;
	u32 next = operand(code);
	if ((next & 0xff) == 0x41) /* pop r8 to r15 */
		next >>= 8;
	if ((next & 0xf8) != 0x58)
		return 0;
	next >>= 8;
	if ((next & 0xff) == 0x41)
		next >>= 8;
	return (next & 0xf8) == 0x58 ? 16 : 0;
}

/* Walks a frame of code that is no function: stubs, adapters, the runtime's.
 * Only the runtime's says how large its frames are, and not always. The others
 * keep rbp, where they have a frame: right after they have made it, rbp is rsp. */
STEP u32 hotspot_stub(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	bool routines = h->name == HOTSPOT_STUB_ROUTINES, adapter = h->name == HOTSPOT_ADAPTERS;
	u64 name = 0, room = 4096;
	if (routines && !READ_USER(&name, 8, blob64(w, h->process.name) + 14) && name == HOTSPOT_CONTINUATION)
		room = 1 << 20; /* below rbp it makes room for a virtual thread's frames */
	s32 frame = blob32(w, h->process.frame_size);
	bool sized = !routines && !adapter && frame > 0;
	bool kept = !sized && !adapter && keeps_rbp(w, room, routines);
	enum hotspot_leaf_state state = LEAF_WHOLE;
	u64 top = w->sp + ((u64)(u32)frame << 3), back = 0;
	if (!w->is_return) {
		if (READ_USER(h->around, sizeof(h->around), w->ip - 4) || READ_USER(&back, 8, w->sp))
			return END_UNREADABLE;
		state = hotspot_prologue(h->around) == LEAF_PUSHED ? LEAF_PUSHED : hotspot_epilogue(h->around);
		if (name != HOTSPOT_CONTINUATION && (w->ip == h->code || (kept && code_heap(w, back))))
			state = LEAF_NONE; /* its frame is not made yet */
		if (h->name == HOTSPOT_FLUSH_ICACHE)
			state = LEAF_NONE; /* it has none; C code calls it */
		if (state == LEAF_WHOLE && sized)
			top += pushed_above(w, top);
	}
	push_java(w, HOTSPOT_STUB, h->start, w->ip);
	if (adapter || (!sized && !kept && state == LEAF_WHOLE)) {
		if (!adapter && !w->is_return && leave_called(w)) {
			w->sp += routines ? 0 : given(w);
			return 0;
		}
		if (!adapter && !w->is_return)
			w->sp += pushed_above(w, w->sp + 8);
		return leave_frameless(w, adapter);
	}
	return sized ? leave_leaf(w, state, top) : leave_kept(w, state);
}

/* Walks one frame of Java, on the stack or in a StackChunk. */
static __always_inline u32 hotspot_frame(struct walk *w)
{
	struct hotspot_walk *h = &w->hotspot;
	if (interpreted(w, w->ip))
		return hotspot_interpreted(w);
	if (!code_heap(w, w->ip))
		return STEP_IN_CODE_MADE;
	u32 end = hotspot_find(w);
	if (end) {
		if (!h->chunk)
			push_frame(w, FRAME_ANONYMOUS | ((w->ip - w->is_return) & ADDRESS_BITS));
		return end;
	}
	if (h->name == HOTSPOT_NATIVE_NMETHOD && w->count == h->first)
		h->calls = 1;
	if (h->name == HOTSPOT_NMETHOD || h->name == HOTSPOT_NATIVE_NMETHOD)
		return hotspot_compiled(w);
	return hotspot_stub(w);
}

/* Begins with the first frame of Java; false where the JVM is not known. */
static __always_inline bool begin_hotspot(struct walk *w)
{
	struct hotspot_walk *h = &w->hotspot;
	struct hotspot_process *p = hotspot_process_of(w->owner);
	if (!p)
		return false;
	h->process = *p;
	h->start = h->end = h->method = 0;
	h->chunk = h->entry = 0;
	h->first = w->count;
	h->calls = w->is_return;
	w->languages.begun |= RUNS(LANGUAGE_JAVA);
	return true;
}

/* Walks one frame in code that a JVM made; STEP_IN_CODE_MADE: it is not the JVM's. */
STEP u32 hotspot_step(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct hotspot_walk *h = &w->hotspot;
	if (!(w->languages.begun & RUNS(LANGUAGE_JAVA)) && !begin_hotspot(w))
		return STEP_IN_CODE_MADE;
	if (w->count >= MAX_FRAMES - 1)
		return END_TOO_DEEP;
	if (w->ip == h->process.barrier && w->is_return && w->ip)
		return enter_heap(w);
	u64 sp = w->sp;
	u32 end = hotspot_frame(w);
	return h->chunk ? after_chunk_frame(w, sp, end) : end;
}

#endif
