/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Regular expressions that PCRE2 compiled (10.30 to 10.42): code in memory
 * without a file, which PHP runs on a stack of its own for what it may have to
 * undo; its frame is an ordinary one, without a frame pointer:
 *
 *   push rbx r15 r14 r13 rbp, as many as it needs
 *   mov rbx, rdi
 *   sub rsp, n
 *
 * Then rbp has the arguments, which lie in the caller's frame, and lead to where
 * the code begins: so its own first instructions tell where the return address
 * is. Before, they are in rdi and rbx. Its last are as those of .NET's methods.
 *
 *   arguments -> match data -> pattern -> code of it, of three kinds */
#ifndef ATYS_PCRE_H
#define ATYS_PCRE_H

#include "dotnet.h"

#define PCRE_MATCH_DATA 32 /* in the arguments */
#define PCRE_PATTERN 24	   /* in match data */
#define PCRE_CODE 32	   /* in the pattern */
#define PCRE_CODE_BYTES (1 << 20)
#define PCRE_CODE_MASK 63

/* What is read of a frame of PCRE, in w->dotnet, which no PHP needs. */
#define PCRE_WORDS(w) ((w)->dotnet.before)

/* Where the code begins that holds the pc, if these are its arguments; else 0. */
STEP u64 pcre_beginning(struct walk *w, u64 arguments)
{
	u64 at = 0, start = 0;
	if (!w)
		return 0;
	u64 *code = PCRE_WORDS(w);
	if (arguments <= w->sp || READ_USER(&at, 8, arguments + PCRE_MATCH_DATA) || READ_USER(&at, 8, at + PCRE_PATTERN) ||
	    READ_USER(&at, 8, at + PCRE_CODE) || READ_USER(code, 24, at))
		return 0;
	for (int i = 0; i < 3; i++) {
		if (code[i] <= w->ip && code[i] > start)
			start = code[i];
	}
	return w->ip - start < PCRE_CODE_BYTES ? start : 0;
}

/* Reads one instruction of the beginning: 1 if it is one, 2 if it is the last. */
STEP u32 pcre_read_beginning(struct walk *w)
{
	if (!w)
		return 0;
	u32 at = w->dotnet.at, code, words;
	OPAQUE(at);
	at &= PCRE_CODE_MASK;
	__builtin_memcpy(&code, &w->dotnet.code[at], 4);
	__builtin_memcpy(&words, &w->dotnet.code[(at + 3) & PCRE_CODE_MASK], 4);
	if (code == 0xfa1e0ff3) { /* endbr64 */
		w->dotnet.at = at + 4;
	} else if ((code & 0xf8) == 0x50) { /* push */
		w->dotnet.words++;
		if ((code & 0xff) == 0x55)
			w->dotnet.bp = w->dotnet.words;
		w->dotnet.at = at + 1;
	} else if ((code & 0xf8ff) == 0x5041) {
		w->dotnet.words++;
		w->dotnet.at = at + 2;
	} else if ((code & 0xc0fff8) == 0xc08948 || (code & 0xc0fff8) == 0xc08b48) { /* mov */
		w->dotnet.at = at + 3;
	} else if ((code & 0xffffff) == 0xec8348) { /* sub rsp, imm8 */
		w->dotnet.words += code >> 27;
		w->dotnet.at = at + 4;
		return 2;
	} else if ((code & 0xffffff) == 0xec8148) { /* sub rsp, imm32 */
		w->dotnet.words += words >> 3;
		w->dotnet.at = at + 7;
		return 2;
	} else {
		return 0;
	}
	return 1;
}

/* Whether a word is the address behind a call by pointer, the only way in. */
static __always_inline bool pcre_called(u64 address)
{
	u32 code = 0;
	if (READ_USER(&code, 4, address - 4))
		return false;
	return (code >> 16 & 0xf8ff) == 0xd0ff || (code >> 8 & 0xf8ff) == 0x50ff;
}

/* Reads the beginning up to the pc; false if it is not understood. */
static __always_inline bool pcre_read_frame(struct walk *w, u64 start)
{
	w->dotnet.at = w->dotnet.words = w->dotnet.bp = 0;
	if (!start || READ_USER(w->dotnet.code, PCRE_CODE_MASK + 1, start))
		return false;
	for (int i = 0; i < 16; i++) {
		if (start + w->dotnet.at >= w->ip)
			return true; /* not farther yet */
		u32 more = pcre_read_beginning(w);
		if (more != 1)
			return more == 2;
	}
	return false;
}

/* Goes on from code of PCRE, if that is what the pc is in. */
STEP u32 step_pcre(struct walk *w)
{
	u64 ip = 0;
	if (!w)
		return END_CORRUPT;
	push_frame(w, FRAME_ANONYMOUS | ((w->ip - w->is_return) & ADDRESS_BITS));
	if (w->is_return)
		return END_NO_UNWIND;
	if (dotnet_ends(w) && !READ_USER(&ip, 8, w->sp + 8ull * w->dotnet.words) && pcre_called(ip))
		return dotnet_leave(w);
	u64 arguments = w->bp, start = pcre_beginning(w, arguments);
	if (!start)
		start = pcre_beginning(w, arguments = w->regs[3]); /* rbx */
	if (!start)
		start = pcre_beginning(w, arguments = w->regs[5]); /* rdi */
	if (!pcre_read_frame(w, start))
		return END_NO_UNWIND;
	u64 at = w->sp + 8ull * w->dotnet.words;
	if (at >= arguments || READ_USER(&ip, 8, at))
		return END_NO_UNWIND;
	if (!pcre_called(ip)) { /* its own subroutines push where they return to, for one instruction */
		at += 8;
		if (at >= arguments || READ_USER(&ip, 8, at) || !pcre_called(ip))
			return END_NO_UNWIND;
	}
	if (w->dotnet.bp && READ_USER(&w->bp, 8, at - 8ull * w->dotnet.bp))
		return END_UNREADABLE;
	w->ip = ip;
	w->sp = at + 8;
	w->is_return = 1;
	return 0;
}

#endif
