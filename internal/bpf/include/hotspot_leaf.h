/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Tells how far the innermost frame of compiled Java is made, or gone, by the
 * instructions around its pc: what both compilers of 8 to 25 write at entries,
 * at returns, and where a loop that was interpreted goes on. */
#ifndef ATYS_HOTSPOT_LEAF_H
#define ATYS_HOTSPOT_LEAF_H

#include "tables.h"

/* How far the frame of a compiled function is made or gone, at the instruction
 * that is next. code holds what lies around it, from 4 bytes before. */
enum hotspot_leaf_state {
	LEAF_WHOLE,
	LEAF_NONE,	/* the return address is on top */
	LEAF_PUSHED,	/* the caller's rbp is, the return address below */
	LEAF_RBP_LIVE,	/* it is whole, but rbp is still the caller's, not saved */
};

static __always_inline enum hotspot_leaf_state hotspot_prologue(const u8 *c)
{
	bool sub = c[4] == 0x48 && (c[5] == 0x81 || c[5] == 0x83) && c[6] == 0xec;
	if (c[4] == 0x41 && c[5] == 0x81 && (c[6] == 0x7f || c[6] == 0xbf))
		return LEAF_WHOLE; /* the barrier at the entry: cmp dword [r15+x], y */
	if (c[4] == 0x0f && (c[5] == 0x85 || c[5] == 0x84))
		return LEAF_WHOLE; /* its branch */
	if ((c[4] == 0x74 || c[4] == 0x75) && c[3] == 0 && c[2] == 0)
		return LEAF_WHOLE; /* likewise, short, after its operand */
	if (c[4] == 0x48 && c[5] == 0x89 && (c[6] == 0x6c || c[6] == 0xac) && c[7] == 0x24)
		return LEAF_RBP_LIVE; /* mov [rsp+x], rbp, after sub rsp */
	if (c[3] == 0x55 && (sub || (c[4] == 0x48 && (c[5] == 0x8b || c[5] == 0x89))))
		return LEAF_PUSHED; /* after push rbp: sub rsp, or mov rbp, rsp */
	if (sub && c[1] == 0x48 && ((c[2] == 0x8b && c[3] == 0xec) || (c[2] == 0x89 && c[3] == 0xe5)))
		return LEAF_PUSHED; /* after mov rbp, rsp */
	return LEAF_NONE;
}

static __always_inline u32 operand(const u8 *c)
{
	return c[0] | c[1] << 8 | c[2] << 16 | (u32)c[3] << 24;
}

/* The same where a loop that was interpreted goes on compiled: that entry lies
 * in the midst of the code and makes a frame of its own. What may be said of a
 * pc there must be what no other code says. */
static __always_inline enum hotspot_leaf_state hotspot_second_entry(const u8 *c, u32 frame)
{
	bool sub = c[4] == 0x48 && (c[5] == 0x81 || c[5] == 0x83) && c[6] == 0xec, pushed = c[3] == 0x55;
	bool saves = c[4] == 0x48 && c[5] == 0x89 && (c[6] == 0x6c || c[6] == 0xac) && c[7] == 0x24;
	if (c[4] == 0x55)
		return LEAF_NONE; /* push rbp */
	if (c[4] == 0x89 && c[5] == 0x84 && c[6] == 0x24 && (s32)operand(c + 7) < 0)
		return LEAF_NONE; /* mov [rsp-x], eax: is there room? */
	if (sub && pushed)
		return LEAF_PUSHED;
	if (sub && c[5] == 0x81 && operand(c + 7) == frame - 8)
		return LEAF_NONE; /* sub rsp, all of the frame */
	if (saves && (c[6] == 0x6c ? c[8] : operand(c + 8)) == frame - 16)
		return LEAF_RBP_LIVE; /* mov [rsp+x], rbp, where that is kept */
	return LEAF_WHOLE;
}

/* Whether this is what a poll at a return goes on to, in 17 and later, when the
 * frame is gone: mov r10, where it polled; mov [r15+x], r10; jmp. */
static __always_inline bool hotspot_polled(struct walk *w, const u8 *c)
{
	u8 before[13];
	if (c[4] == 0x49 && c[5] == 0xba)
		return c[14] == 0x4d && c[15] == 0x89 && c[16] == 0x97 && c[21] == 0xe9;
	if (c[4] == 0x4d && c[5] == 0x89 && c[6] == 0x97 && c[11] == 0xe9)
		return !READ_USER(before, 2, w->ip - 10) && before[0] == 0x49 && before[1] == 0xba;
	return c[4] == 0xe9 && !READ_USER(before, sizeof(before), w->ip - 17) && before[0] == 0x49 && before[1] == 0xba &&
	       before[10] == 0x4d && before[11] == 0x89 && before[12] == 0x97;
}

static __always_inline enum hotspot_leaf_state hotspot_epilogue(const u8 *c)
{
	if (c[4] == 0xc3)
		return LEAF_NONE; /* ret */
	if (c[4] == 0x5d && (c[5] == 0xc3 || c[5] == 0x49 || c[5] == 0x4d || c[5] == 0xc5 || c[5] == 0x85))
		return LEAF_PUSHED; /* pop rbp; then ret, a poll, or vzeroupper */
	if (c[4] == 0xc5 && c[5] == 0xf8 && c[6] == 0x77 && c[3] == 0x5d)
		return LEAF_NONE; /* vzeroupper after pop rbp */
	if (c[4] == 0x49 && c[5] == 0x3b && (c[6] == 0x67 || c[6] == 0xa7))
		return LEAF_NONE; /* the poll of 17 and later: cmp rsp, [r15+x] */
	if (c[4] == 0x0f && c[5] == 0x87 && c[10] == 0xc3)
		return LEAF_NONE; /* its branch */
	if (c[4] == 0x4d && c[5] == 0x8b && (c[6] == 0x97 || c[6] == 0x57) && c[11] == 0x41 && c[12] == 0x85 && c[14] == 0xc3)
		return LEAF_NONE; /* the poll of 11: mov r10, [r15+x]; test [r10], eax */
	if (c[4] == 0x49 && c[5] == 0xba && c[14] == 0x41 && c[15] == 0x85)
		return LEAF_NONE; /* likewise of a page for all threads, as in 8: mov r10, x */
	if (c[4] == 0x41 && c[5] == 0x85 && c[6] == 0x02 && c[7] == 0xc3)
		return LEAF_NONE; /* the second half of both */
	if (c[4] == 0x85 && c[5] == 0x05 && c[10] == 0xc3)
		return LEAF_NONE; /* where that page is near: test [rip+x], eax */
	return LEAF_WHOLE;
}

/* How far the innermost frame is made, of a compiled function. */
static __always_inline enum hotspot_leaf_state hotspot_state(struct walk *w, bool entry, u32 frame)
{
	const u8 *c = w->hotspot.around;
	if (entry)
		return hotspot_prologue(c);
	enum hotspot_leaf_state state = hotspot_epilogue(c);
	if (state == LEAF_WHOLE)
		state = hotspot_second_entry(c, frame);
	return state == LEAF_WHOLE && hotspot_polled(w, c) ? LEAF_NONE : state;
}

#endif
