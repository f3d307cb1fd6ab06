/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What walks know of a JVM and its code, and how they add frames of Java. */
#ifndef ATYS_HOTSPOT_CODE_H
#define ATYS_HOTSPOT_CODE_H

#include "photographs.h"
#include "processes.h"

PROCESSES_OF(hotspot, LANGUAGE_JAVA)

/* A frame's what: the address of an nmethod, a Method or a code blob, and which
 * of them it is. Its where:
 *
 *   compiled     compile id << 32 | offset of the pc in the code
 *   interpreted  identity of the method << 20 | place of the bytecode in its ConstMethod, or 0
 *   stub         address of the pc
 *   cut          0: here a virtual thread's older frames are missing */
#define HOTSPOT_KIND_SHIFT 48
#define HOTSPOT_ADDRESS ((1ull << HOTSPOT_KIND_SHIFT) - 1)
#define HOTSPOT_PLACE_BITS 20
#define HOTSPOT_PLACES (65536 + 128) /* in a ConstMethod: its head, and code of at most 64 KB */
enum hotspot_kind {
	HOTSPOT_COMPILED,
	HOTSPOT_INTERPRETED,
	HOTSPOT_STUB,
	HOTSPOT_CUT,
};

#define HOTSPOT_HOPS 64	       /* in the segment map, of up to 254 segments each */
#define HOTSPOT_LEAF_ROOM 65536 /* a caller's words that an adapter may move */

static __always_inline void push_java(struct walk *w, enum hotspot_kind kind, u64 what, u64 where)
{
	what = (u64)kind << HOTSPOT_KIND_SHIFT | (what & HOTSPOT_ADDRESS);
	push_language_frame(w, LANGUAGE_JAVA, what, where);
	/* Functions go with their class, compiled ones sooner. */
	if (kind == HOTSPOT_COMPILED)
		sight(w, LANGUAGE_JAVA, what, where >> 32, where);
	if (kind == HOTSPOT_INTERPRETED)
		sight(w, LANGUAGE_JAVA, what, where >> HOTSPOT_PLACE_BITS, where);
}

/* Fields of the blob that the walk looks at. */
static __always_inline u32 blob32(struct walk *w, u32 at)
{
	OPAQUE(at);
	return *(u32 *)((char *)w->hotspot.blob + (at & HOTSPOT_BLOB_MASK));
}

static __always_inline u64 blob64(struct walk *w, u32 at)
{
	OPAQUE(at);
	return *(u64 *)((char *)w->hotspot.blob + (at & HOTSPOT_BLOB_MASK));
}

/* The heap that holds an address; 0: none. */
static __always_inline const struct hotspot_heap *code_heap(struct walk *w, u64 pc)
{
	const struct hotspot_heap *found = 0;
#pragma unroll
	for (int i = 0; i < HOTSPOT_HEAPS; i++) {
		const struct hotspot_heap *h = &w->hotspot.process.heaps[i];
		if (pc >= h->low && pc < h->high)
			found = h;
	}
	return found;
}

/* A register of the innermost frame; 0 further out. */
static __always_inline u64 leaf_register(struct walk *w, u32 dwarf)
{
	return w->count == 0 ? w->regs[dwarf] : 0;
}

#define RAX 0
#define RBX 3
#define R13 13

/* Where the caller's stack began before its words were moved for the callee:
 * adapters and the interpreter keep it in r13, on the way out in rbx. */
static __always_inline u64 sender(struct walk *w, u64 above)
{
	u64 r13 = leaf_register(w, R13), rbx = leaf_register(w, RBX);
	if (r13 >= above && r13 - above < HOTSPOT_LEAF_ROOM && !(r13 & 7))
		return r13;
	if (rbx >= above && rbx - above < HOTSPOT_LEAF_ROOM && !(rbx & 7))
		return rbx;
	return above;
}

#endif
