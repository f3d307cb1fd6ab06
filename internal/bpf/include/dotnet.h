/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Managed code of .NET that was compiled at run time: in memory without a file.
 *
 * Its methods keep rbp, but for small ones (less than 100 bytes of IL, no loop,
 * at most one call), whose callers a walk by frame pointers would leave out.
 * Before each method's code stands a pointer to its header, which tells what
 * code is its own; from there the first instructions tell of the frame:
 *
 *   push rbp; push ...; sub rsp, n; lea rbp, [rsp + n]    keeps rbp
 *   push ...; sub rsp, n                                  does not
 *
 * Methods whose beginning is far from the pc are not small.
 *
 * Calls through interfaces, and of what was not compiled when its caller was,
 * pass through stubs of the runtime: a few instructions without a frame, in
 * which rbp is that of the calling method still (vm/amd64/cgencpu.h and
 * virtualcallstubcpu.hpp of .NET Core 3.1). They are told by their bytes. */
#ifndef ATYS_DOTNET_H
#define ATYS_DOTNET_H

#include "native.h"
#include "processes.h"

#define DOTNET_BACK 520 /* bytes that are searched for the beginning of a method */

/* A process, as package lang/dotnet found it. */
struct dotnet_process {
	u32 pieces; /* in a method's header: how many pieces of code it has, then the places of each */
	u32 method; /* and what it is the code of */
};

PROCESSES_OF(dotnet, LANGUAGE_DOTNET)

/* Begin and end count from the first page of an area at a multiple of 64 KiB. */
struct dotnet_pieces {
	u32 count, begin, end;
};

/* Tells whether the code at start has the header given, and whether pc lies in it. */
STEP u32 dotnet_begins(struct walk *w, u64 start, u64 header)
{
	struct dotnet_pieces pieces;
	u64 method;
	if (!w || !is_object(header))
		return 0;
	u32 owner = w->owner;
	struct dotnet_process *p = dotnet_process_of(owner);
	if (!p || READ_USER(&pieces, sizeof(pieces), header + p->pieces) || READ_USER(&method, 8, header + p->method))
		return 0;
	if (!is_object(method) || !pieces.count || pieces.count > 4096)
		return 0;
	if (pieces.begin >= pieces.end || ((start - pieces.begin) & 0xffff) >= 0x1000)
		return 0;
	return pieces.count > 1 || w->ip - w->is_return - start < pieces.end - pieces.begin;
}

/* Finds where the method begins that holds pc; 0: not near. */
static __always_inline u64 dotnet_beginning(struct walk *w, u64 pc)
{
	u64 top = pc & ~15ull, from = top - DOTNET_BACK;
	if (from < w->languages.code || from > top)
		from = w->languages.code;
	if (READ_USER(w->dotnet.before, DOTNET_BACK, from))
		return 0;
	for (u32 i = 0; i <= DOTNET_BACK / 16; i++) {
		u64 at = top - 8 - 16 * i - from;
		if (at > DOTNET_BACK - 8)
			break; /* before what was read */
		at >>= 3;
		OPAQUE(at);
		if (dotnet_begins(w, top - 16 * i, w->dotnet.before[at & DOTNET_BEFORE_MASK]))
			return top - 16 * i;
	}
	return 0;
}

/* The code at an offset of what was read. */
static __always_inline u32 dotnet_code(struct walk *w, u32 at)
{
	u32 code;
	OPAQUE(at);
	at &= DOTNET_CODE_MASK;
	__builtin_memcpy(&code, &w->dotnet.code[at], 4);
	return code;
}

/* Leaves a frame without rbp. */
static __always_inline u32 dotnet_leave(struct walk *w)
{
	u64 ip, at = w->sp + 8ull * w->dotnet.words;
	if (READ_USER(&ip, 8, at))
		return END_UNREADABLE;
	if (w->dotnet.bp && READ_USER(&w->bp, 8, at - 8ull * w->dotnet.bp))
		return END_UNREADABLE;
	w->ip = ip;
	w->sp = at + 8;
	w->is_return = 1;
	return ip ? 0 : END_CORRUPT;
}

/* Reads one instruction of a method's end; 0: it is none. Of rbp it keeps where
 * it is from rsp, until that is known from the return address. */
STEP u32 dotnet_read_end(struct walk *w)
{
	if (!w)
		return 0;
	u32 at = w->dotnet.at, code = dotnet_code(w, at);
	if ((code & 0xf8) == 0x58) { /* pop */
		if ((code & 0xff) == 0x5d)
			w->dotnet.bp = w->dotnet.words + 1;
		at += 1;
	} else if ((code & 0xf8ff) == 0x5841) {
		at += 2;
	} else {
		return 0;
	}
	w->dotnet.words++;
	w->dotnet.at = at;
	return 1;
}

/* Tells whether the pc is in a method's end: add rsp, n; pop ...; ret. */
static __always_inline bool dotnet_ends(struct walk *w)
{
	w->dotnet.at = w->dotnet.words = w->dotnet.bp = 0;
	if (READ_USER(w->dotnet.code, 32, w->ip))
		return false;
	u32 code = dotnet_code(w, 0);
	if ((code & 0xffffff) == 0xc48348) { /* add rsp, imm8 */
		w->dotnet.words = code >> 27;
		w->dotnet.at = 4;
	}
	for (int i = 0; i < 8; i++)
		if (!dotnet_read_end(w))
			break;
	if ((dotnet_code(w, w->dotnet.at) & 0xff) != 0xc3)
		return false;
	if (w->dotnet.bp)
		w->dotnet.bp = w->dotnet.words + 1 - w->dotnet.bp;
	return true;
}

/* Reads one instruction of a method's beginning; 0: it is none. */
STEP u32 dotnet_read_beginning(struct walk *w)
{
	if (!w)
		return 0;
	u32 at = w->dotnet.at, code = dotnet_code(w, at);
	if ((code & 0xf8) == 0x50) { /* push */
		w->dotnet.words++;
		if ((code & 0xff) == 0x55)
			w->dotnet.bp = w->dotnet.words;
		at += 1;
	} else if ((code & 0xf8ff) == 0x5041) {
		w->dotnet.words++;
		at += 2;
	} else if ((code & 0xffffff) == 0xec8348) { /* sub rsp, imm8 */
		w->dotnet.words += code >> 27;
		at += 4;
	} else if ((code & 0xffffff) == 0xec8148) { /* sub rsp, imm32 */
		w->dotnet.words += dotnet_code(w, at + 3) >> 3;
		at += 7;
	} else if ((code & 0xffffff) == 0x77f8c5) { /* vzeroupper */
		at += 3;
	} else {
		return 0;
	}
	w->dotnet.at = at;
	return 1;
}

/* Reads the beginning of a method up to the pc. True where rbp holds its frame:
 * what pushes it keeps it. */
static __always_inline bool dotnet_keeps_bp(struct walk *w, u64 start)
{
	w->dotnet.at = w->dotnet.words = w->dotnet.bp = 0;
	for (int i = 0; i < 12; i++) {
		if (start + w->dotnet.at >= w->ip)
			return false; /* not farther yet */
		if (!dotnet_read_beginning(w))
			break;
	}
	return w->dotnet.bp;
}

#define DOTNET_SHUFFLE 24 /* bytes by which a stub moves up to 6 arguments, of a delegate */
#define DOTNET_STUB 1 /* and how many words it has pushed; 0: it is no stub */

/* Of a stub that the pc is in, from its first instruction on:
 *
 *   precode    e9 x 5f                             jmp
 *              49 ba X 40 e9 x                     mov r10, X; jmp
 *   jump       48 b8 X ff e0                       mov rax, X; jmp rax
 *   dispatch   48 b8 X 48 39 07 90 48 b8 X 0f 85 x ff e0
 *   table      48 8b 07 48 8b 40 n ff 60 n         mov rax, [rdi]; ...; jmp [rax+n]
 *   shuffle    48 8b c4 49 89 fb ... 4d 8b 53 20 49 83 c3 20 49 ff e2
 *   resolve    52 49 ba X 48 8b 07 ... 48 8b 40 10 5a ff e0: rdx is on the stack
 *
 * where n are 8 bits or, with other codes, 32, as x; and X are 64. */
STEP u32 dotnet_stub_begins(struct walk *w)
{
	if (!w || READ_USER(w->dotnet.code, DOTNET_CODE_MASK + 1, w->ip))
		return 0;
	u32 first = dotnet_code(w, 0), after = dotnet_code(w, 10);
	switch (first & 0xffff) {
	case 0xba49:
		if ((after & 0xffffff) == 0x078b48)
			return DOTNET_STUB + 1;
		return (after & 0xffff) == 0xe940 ? DOTNET_STUB : 0;
	case 0xb848:
		if ((after & 0xffff) == 0xe0ff || (after & 0xffffff) == 0x073948)
			return DOTNET_STUB;
		return (after & 0xffff) == 0x850f && (dotnet_code(w, 16) & 0xffff) == 0xe0ff ? DOTNET_STUB : 0;
	case 0x850f:
		return (dotnet_code(w, 6) & 0xffff) == 0xe0ff ? DOTNET_STUB : 0;
	case 0xe940:
		return DOTNET_STUB;
	}
	if ((first & 0xff) == 0xe9)
		return !(w->ip & 7) && (dotnet_code(w, 5) & 0xff) == 0x5f ? DOTNET_STUB : 0;
	switch (first & 0xffffff) {
	case 0xba4952:
		return (dotnet_code(w, 11) & 0xffffff) == 0x078b48 ? DOTNET_STUB : 0;
	case 0x073948:
		return (dotnet_code(w, 3) & 0xffffff) == 0xb84890 ? DOTNET_STUB : 0;
	case 0xb84890:
		return (dotnet_code(w, 11) & 0xffff) == 0x850f ? DOTNET_STUB : 0;
	}
	return 0;
}

/* Whether the pc is in a table stub that has begun, or begins. */
static __always_inline bool dotnet_is_table_stub(struct walk *w)
{
	u32 at = 0;
	if ((dotnet_code(w, at) & 0xffffff) == 0x078b48)
		at = 3;
	if ((dotnet_code(w, at) & 0xffffff) == 0x408b48)
		at += 4;
	else if ((dotnet_code(w, at) & 0xffffff) == 0x808b48)
		at += 7;
	u32 jump = dotnet_code(w, at) & 0xffff;
	return jump == 0x60ff || jump == 0xa0ff;
}

/* The same of a pc further on, whose bytes are read. */
STEP u32 dotnet_stub_ends(struct walk *w)
{
	if (!w)
		return 0;
	if (dotnet_is_table_stub(w))
		return DOTNET_STUB;
	if ((dotnet_code(w, 0) & 0xffff) == 0xe0ff) {
		u64 *before = w->dotnet.before; /* 16 bytes */
		if (READ_USER(before, 16, w->ip - 16))
			return 0;
		bool jump = (before[0] >> 48) == 0xb848, dispatch = (before[1] >> 16 & 0xffff) == 0x850f;
		return jump || dispatch || before[1] >> 24 == 0x5a10408b48 ? DOTNET_STUB : 0;
	}
	if ((dotnet_code(w, 0) & 0xffffff) == 0xe2ff49 ||
	    ((dotnet_code(w, 0) & 0xffffff) == 0xc38349 && (dotnet_code(w, 4) & 0xffffff) == 0xe2ff49))
		return DOTNET_STUB;
	for (u32 i = 0; i < DOTNET_CODE_MASK - 4; i++) {
		if (i < DOTNET_SHUFFLE && dotnet_code(w, i) == 0x20538b4d && (dotnet_code(w, i + 4) & 0xffffff) == 0xc38349)
			return DOTNET_STUB;
		if (dotnet_code(w, i) == 0x10408b48 && (dotnet_code(w, i + 4) & 0xffffff) == 0xe0ff5a)
			return DOTNET_STUB + 1;
	}
	return 0;
}

/* Goes on from a pc in managed code. */
STEP u32 step_dotnet(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	u64 pc = w->ip - w->is_return;
	if (!w->is_return) {
		u32 stub = dotnet_stub_begins(w);
		if (!stub)
			stub = dotnet_stub_ends(w);
		if (stub) {
			push_language_frame(w, LANGUAGE_DOTNET, 0, 0);
			w->dotnet.words = stub - DOTNET_STUB;
			w->dotnet.bp = 0;
			return dotnet_leave(w);
		}
	}
	push_frame(w, FRAME_ANONYMOUS | (pc & ADDRESS_BITS));
	if (!w->is_return && dotnet_ends(w))
		return dotnet_leave(w);
	u64 start = dotnet_beginning(w, pc);
	if (!start)
		return step_frame_pointer(w, false);
	if (READ_USER(w->dotnet.code, DOTNET_CODE_MASK + 1, start))
		return END_UNREADABLE;
	if (dotnet_keeps_bp(w, start))
		return step_frame_pointer(w, false);
	return dotnet_leave(w);
}

#endif
