/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* JavaScript functions on the stacks of V8, which keeps frame pointers in all
 * code it makes. A frame of a function:
 *
 *   fp+8   return address
 *   fp     the caller's fp
 *   fp-8   its context; in frames of other kinds their type, even
 *   fp-16  the function (JSFunction)
 *   fp-32  its bytecode          interpreted functions only
 *   fp-40  where in it, a small integer, likewise
 *
 * Compiled code lies in memory without a file: step_v8 walks it. Interpreted
 * functions, and those of JavaScript's library, run code of V8's file, which
 * has rows: add_v8 puts the function above the native frame.
 *
 * A JSFunction moves, what it shares with others of the same source seldom
 * does (SharedFunctionInfo): that is what a frame records. Its photograph is
 * taken when it is first seen. Pointers are odd ("tagged"), small integers have
 * their value in the upper half. All is read from a running program and may be
 * anything: what has not the right type is passed over; a stack of which
 * something could not be read says so. */
#ifndef ATYS_V8_H
#define ATYS_V8_H

#include "native.h"
#include "photographs.h"
#include "processes.h"

/* What package lang/v8 found out of a process. Types are V8's instance types;
 * the others are offsets in objects. */
struct v8_process {
	u64 builtins, builtins_end; /* file offsets of the code that V8 brings along */
	u32 instance_type;	    /* in a map */
	u32 first_function, last_function;
	u32 bytecode_type, scope_type, script_type, shared_type;
	u32 shared;	  /* of a JSFunction */
	u32 name, script; /* of what is shared */
	u32 script_name;
	u32 scope_variables; /* word of a scope at which its variables begin */
	u32 scope_positions; /* where a scope keeps its positions; 0: behind its names */
	u32 wasm_frame;	     /* type of frames */
};

/* Kinds of code, in the upper 4 bits of a frame's second word. */
#define V8_INTERPRETED 1 /* the rest is the offset in the bytecode, as the frame has it */
#define V8_COMPILED 2	 /* the rest is the pc */
#define V8_BUILTIN 3
#define V8_WASM 4
#define V8_CALLING 5 /* compiled code that has called; the rest is within its call */
#define V8_KIND_SHIFT 60

#define V8_PHOTOGRAPHED_NAME 511	 /* bytes that are copied of a function's name */
#define V8_PHOTOGRAPHED_SCRIPT_AT 512 /* and of its script's, and where */
#define V8_PHOTOGRAPHED_SCRIPT 1023
#define V8_PLACE_SHIFT 8 /* code of one function that lies in the same 256 bytes is one piece */
#define V8_TWO_BYTES (1u << 31) /* beside the length of a photographed string */

/* Fixed in all supported versions; Read of package lang/v8 checks it. */
#define V8_STRINGS 128 /* instance types below are strings */
#define V8_STRING_LENGTH 12
#define V8_STRING_CHARS 16
#define V8_STRING_FIRST 16 /* what a string of another string begins with */
#define V8_STRING_SECOND 24
#define V8_SCOPE_LOCALS 24
#define V8_SCOPE_INLINED 75 /* from so many locals on their names are kept apart */

PROCESSES_OF(v8, LANGUAGE_V8)

#define V8_NO_TYPE 0xffffffff

static __always_inline bool v8_pointer(u64 word)
{
	return (word & 3) == 1;
}

/* The instance type of the object at a tagged pointer. */
static __always_inline u32 v8_type(struct v8_process *p, u64 object)
{
	u64 map = 0;
	u16 type = 0;
	if (!v8_pointer(object) || READ_USER(&map, 8, object - 1) || !v8_pointer(map) ||
	    READ_USER(&type, 2, map - 1 + p->instance_type))
		return V8_NO_TYPE;
	return type;
}

/* The flat string that a string stands for, or 0; *type is its type. */
static __always_inline u64 v8_flat_string(struct v8_process *p, u64 string, u32 *type)
{
	for (int i = 0; i < 3; i++) {
		u32 length = 0;
		u64 second = 0;
		*type = v8_type(p, string);
		if (*type >= V8_STRINGS)
			return 0;
		switch (*type & 7) {
		case 0:
			return string;
		case 1: /* of two, which is flat once the second is empty */
			if (READ_USER(&second, 8, string - 1 + V8_STRING_SECOND) || !v8_pointer(second) ||
			    READ_USER(&length, 4, second - 1 + V8_STRING_LENGTH) || length)
				return 0;
			break;
		case 5: /* moved elsewhere */
			break;
		default:
			return 0;
		}
		if (READ_USER(&string, 8, string - 1 + V8_STRING_FIRST))
			return 0;
	}
	return 0;
}

/* Copies a string's characters; most bytes must be a power of two less one. */
#define V8_COPY_STRING(p, photograph, slot, at, most, string)                                              \
	do {                                                                                               \
		u32 type, length = 0;                                                                      \
		u64 flat = v8_flat_string(p, string, &type);                                               \
		if (!flat || READ_USER(&length, 4, flat - 1 + V8_STRING_LENGTH))                           \
			break;                                                                             \
		if (length > (most))                                                                       \
			length = (most);                                                                   \
		if (!(type & 8))                                                                           \
			length *= 2;                                                                       \
		if (length > (most))                                                                       \
			length = (most) - 1; /* which is even */                                           \
		OPAQUE(length);                                                                            \
		length &= (most);                                                                          \
		if (!READ_USER((photograph)->bytes + (at), length, flat - 1 + V8_STRING_CHARS))            \
			(photograph)->lengths[slot] = length | (type & 8 ? 0 : V8_TWO_BYTES);              \
	} while (0)

/* Finds in a function's scope its name, and where in the script it is:
 *
 *   locals' names and values | name of the class | function's name | index |
 *   inferred name, if any | start | end
 *
 * of which the second may be missing, and newer ones have the last two first.
 * A name that nobody wrote is inferred, as of methods of an object. */
static __always_inline u64 v8_read_scope(struct v8_process *p, struct photograph *f, u64 scope, u64 *words)
{
	u64 locals = 0;
	u32 length = 0;
	if (READ_USER(&locals, 8, scope - 1 + V8_SCOPE_LOCALS) || locals >> 52)
		return 0;
	locals >>= 32;
	locals = locals < V8_SCOPE_INLINED ? 2 * locals : locals + 1;
	u64 at = scope - 1 + 8 + 8 * (p->scope_variables + locals);
	if (READ_USER(words, 8, at))
		return 0;
	if (!(words[0] & 1))
		at += 8;
	if (READ_USER(words, 40, at))
		return 0;
	bool named = v8_type(p, words[0]) < V8_STRINGS;
	if (p->scope_positions) {
		if (READ_USER(&f->values[4], 16, scope - 1 + p->scope_positions))
			return 0;
	} else if (named) {
		f->values[4] = words[2] & 1 ? words[3] : words[2];
		f->values[5] = words[2] & 1 ? words[4] : words[3];
	}
	if (!named)
		return 0;
	if (!READ_USER(&length, 4, words[0] - 1 + V8_STRING_LENGTH) && length == 0)
		return words[2];
	return words[0];
}

/* Lines and inlined calls are read by user space, as soon as it can: unless it
 * is at it already, it is woken. */
static __always_inline void v8_end_photograph(struct photograph *f)
{
	SUBMIT_PHOTOGRAPH(f, 0);
}

/* Photographs the function in w->v8, if that was not done before. */
STEP u32 photograph_v8(struct walk *w)
{
	if (!w || !w->v8.shared)
		return 0;
	struct v8_process *p = v8_process_of(w->owner);
	if (!p)
		return 0;
	struct photograph *f = begin_photograph(w, LANGUAGE_V8, w->v8.what);
	if (!f)
		return 0;
	u64 name = w->v8.name, script = w->v8.script, script_name = 0;
	f->values[0] = w->v8.shared;
	f->values[1] = name;
	f->values[2] = script;
	f->values[3] = v8_type(p, script) == p->script_type;
	if (v8_type(p, name) == p->scope_type)
		name = v8_read_scope(p, f, name, w->v8.words);
	V8_COPY_STRING(p, f, 0, 0, V8_PHOTOGRAPHED_NAME, name);
	if (f->values[3] && !READ_USER(&script_name, 8, script - 1 + p->script_name))
		V8_COPY_STRING(p, f, 1, V8_PHOTOGRAPHED_SCRIPT_AT, V8_PHOTOGRAPHED_SCRIPT, script_name);
	v8_end_photograph(f);
	return 0;
}

/* Has user space look at compiled code of the function in w->v8 that
 * was not seen before: it may be collected soon. */
STEP u32 photograph_v8_code(struct walk *w)
{
	if (!w || !w->v8.shared || !w->v8.pc)
		return 0;
	u64 pc = w->v8.pc, what = w->v8.what;
	u64 place = mix(what, pc >> V8_PLACE_SHIFT) & LANGUAGE_WHAT;
	struct photograph *f = begin_photograph(w, LANGUAGE_V8, place);
	if (!f)
		return 0;
	f->values[6] = what;
	f->values[7] = pc;
	v8_end_photograph(f);
	return 0;
}

/* Whether an object is of a kind whose maps are few: the last one that was is
 * remembered for the walk. */
static __always_inline bool v8_is(struct walk *w, struct v8_process *p, u64 object, u32 first, u32 last, u64 *known)
{
	u64 map = 0;
	u16 type = 0;
	if (!v8_pointer(object))
		return false;
	if (READ_USER(&map, 8, object - 1)) {
		w->v8.unread = 1;
		return false;
	}
	if (map == *known)
		return true;
	if (!v8_pointer(map))
		return false;
	if (READ_USER(&type, 2, map - 1 + p->instance_type)) {
		w->v8.unread = 1;
		return false;
	}
	if (type < first || type > last)
		return false;
	*known = map;
	return true;
}

/* Pushes a JSFunction; where tells what of it is running. */
static __always_inline bool push_v8(struct walk *w, struct v8_process *p, u64 function, u64 where)
{
	struct v8_frame *v = &w->v8;
	u64 shared = 0, name = 0, script = 0;
	v->unread = 0;
	if (!v8_is(w, p, function, p->first_function, p->last_function, &w->languages.v8.function_map))
		return false;
	if (READ_USER(&shared, 8, function - 1 + p->shared)) {
		v->unread = 1;
		return false;
	}
	if (!v8_is(w, p, shared, p->shared_type, p->shared_type, &w->languages.v8.shared_map))
		return false;
	if (READ_USER(&name, 8, shared - 1 + p->name) || READ_USER(&script, 8, shared - 1 + p->script)) {
		v->unread = 1;
		return false;
	}
	v->shared = shared;
	v->name = name;
	v->script = script;
	u64 kind = where >> V8_KIND_SHIFT;
	v->pc = kind == V8_COMPILED || kind == V8_CALLING ? w->ip - w->is_return : 0;
	v->what = identity(shared, mix(name, script));
	push_language_frame(w, LANGUAGE_V8, v->what, where);
	return true;
}

/* What a frame surely holds and could not be read is missing from the stack. */
static __always_inline void v8_missing(struct walk *w)
{
	w->languages.cut = END_UNREADABLE;
}

/* Looks at the code around the pc of an innermost frame, which may be about to
 * be made or left; rbp is then the caller's:
 *
 *   made   [checks, up to 32 bytes]  push rbp  mov rbp,rsp  push rsi  push rdi
 *   left   mov rsp,rbp  pop rbp | leave
 *          [cmp rcx,n  jg +3]  ret n | pop r10  lea rsp,[rsp+rcx*8+8]  push r10  ret
 *
 * Elsewhere rbp is its frame. It finds the fp of its own frame, of which the
 * words below are valid, or 0; where there is no frame yet, what may be the
 * function, or 0; where the return address is, 0 for register r10; and the
 * caller's bp and sp. */
static __always_inline bool v8_leaf(struct walk *w)
{
	struct v8_frame *l = &w->v8;
	u64 *code = l->words; /* from 8 bytes before the pc on */
	if (READ_USER(code, sizeof(l->words), w->ip - 8)) {
		v8_missing(w);
		return false;
	}
	u64 c = code[1];
	u32 before = code[0] >> 56;
	u64 function = w->count == 0 ? w->regs[5] : 0;
	l->fp = 0;
	l->function = 0;
	l->returns_at = w->sp;
	l->bp = w->bp;
	l->sp = w->sp + 8;
	if (before == 0x55 && ((c & 0xffffff) == 0xe58948 || (c & 0xffffff) == 0xec8b48)) { /* mov rbp,rsp */
		l->function = function;
		l->returns_at = w->sp + 8;
		l->sp = w->sp + 16;
		return !READ_USER(&l->bp, 8, w->sp);
	}
	if ((c & 0xff) == 0xc3 || (c & 0xff) == 0xc2) { /* ret */
		l->fp = w->sp - 8;
		return true;
	}
	if ((before == 0x5d || before == 0xc9) && ((c & 0xffffff) == 0xf98348 || (c & 0xffffff) == 0xf98148 || (c & 0xff) == 0x59)) {
		l->fp = w->sp - 8; /* cmp rcx,n or pop rcx, after rbp was popped */
		return true;
	}
	if ((c & 0xffffff) == 0xc2037f || (c & 0xffffffffffffff) == 0x08cc648d485a41) { /* jg to, or at, pop r10 */
		l->fp = w->sp - 8;
		return true;
	}
	if ((c & 0xffffffffff) == 0x08cc648d48 && (code[2] & 0xff) != 0xff && w->count == 0) { /* lea */
		l->returns_at = 0;
		l->sp = w->sp;
		l->fp = w->sp - 16;
		return true;
	}
	if ((c & 0xffffff) == 0xc35241 && w->count == 0) { /* push r10; ret */
		l->returns_at = 0;
		l->sp = w->sp;
		return true;
	}
#pragma unroll
	for (int i = 0; i < 32; i++) { /* push rbp; mov rbp,rsp is ahead */
		u64 low = code[1 + i / 8] >> (i % 8 * 8);
		u64 high = i % 8 ? code[2 + i / 8] << (64 - i % 8 * 8) : 0;
		u32 ahead = (u32)(low | high);
		if (ahead == 0xe5894855) {
			l->function = function;
			return true;
		}
	}
	return false;
}

/* Pushes what the frame at fp of code made at run time shows. */
static __always_inline void push_v8_compiled(struct walk *w, struct v8_process *p, u64 fp, u64 function)
{
	u64 pc = w->ip - w->is_return;
	u64 kind = w->is_return ? V8_CALLING : V8_COMPILED;
	u64 *words = w->v8.words;
	words[0] = function;
	words[1] = 1; /* its context */
	if (fp && READ_USER(words, 16, fp - 16)) {
		words[1] = 0;
		v8_missing(w);
	}
	if (words[1] & 1) {
		if (words[0] && push_v8(w, p, words[0], kind << V8_KIND_SHIFT | (pc & ((1ull << V8_KIND_SHIFT) - 1))))
			return;
		if (fp && w->v8.unread)
			v8_missing(w);
	} else if (words[1] == 2 * (u64)p->wasm_frame) {
		push_language_frame(w, LANGUAGE_V8, 0, (u64)V8_WASM << V8_KIND_SHIFT);
		return;
	}
	push_frame(w, FRAME_ANONYMOUS | (pc & ADDRESS_BITS));
}

/* Goes on to the caller by rbp. Code that V8 makes is never outermost: a return
 * address of zero there is none. */
static __always_inline u32 leave_v8(struct walk *w)
{
	u32 end = step_frame_pointer(w, false);
	return end == END_COMPLETE ? END_CORRUPT : end;
}

/* Goes on from a pc in code that V8 made. */
STEP u32 step_v8(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	w->v8.shared = 0;
	w->v8.unread = 0;
	struct v8_process *p = v8_process_of(w->owner);
	if (!p) {
		push_frame(w, FRAME_ANONYMOUS | ((w->ip - w->is_return) & ADDRESS_BITS));
		return leave_v8(w);
	}
	struct v8_frame *leaf = &w->v8;
	if (w->is_return || !v8_leaf(w)) {
		push_v8_compiled(w, p, w->bp, 0);
		return leave_v8(w);
	}
	push_v8_compiled(w, p, leaf->fp, leaf->function);
	u64 ip = w->regs[10];
	if (leaf->returns_at && READ_USER(&ip, 8, leaf->returns_at))
		return END_UNREADABLE;
	w->ip = ip;
	w->sp = leaf->sp;
	w->bp = leaf->bp;
	w->is_return = 1;
	return w->ip ? 0 : END_CORRUPT;
}

/* Whether the native frame just walked is of the code that V8 brings along. */
static __always_inline bool v8_brought(struct walk *w, struct v8_process *p)
{
	return p && w->languages.offset >= p->builtins && w->languages.offset < p->builtins_end;
}

/* Such code is called, too: a return address of zero is none. */
static __always_inline u32 end_v8(struct walk *w)
{
	return v8_brought(w, v8_process_of(w->owner)) ? END_CORRUPT : END_COMPLETE;
}

/* Adds the function whose frame V8's own code just walked had, where it had one:
 * all of it must be written already. */
STEP u32 add_v8(struct walk *w)
{
	if (!w)
		return 0;
	w->v8.shared = 0;
	struct v8_process *p = v8_process_of(w->owner);
	u64 fp = w->languages.bp, *words = w->v8.words;
	if (!v8_brought(w, p))
		return 0;
	if (fp + 16 != w->sp || fp - 16 < w->languages.sp)
		return 0;
	if (READ_USER(words, 40, fp - 40)) {
		v8_missing(w);
		return 0;
	}
	if (!(words[4] & 1)) /* of another kind */
		return 0;
	u64 where = (u64)V8_BUILTIN << V8_KIND_SHIFT;
	if (fp - 40 >= w->languages.sp && !(words[0] & 1) && v8_type(p, words[1]) == p->bytecode_type)
		where = (u64)V8_INTERPRETED << V8_KIND_SHIFT | words[0] >> 32;
	if (!push_v8(w, p, words[3], where) && w->v8.unread)
		v8_missing(w);
	return 0;
}

/* Photographs what the step before has met: not called from there, because old
 * kernels allow few bytes of stack to functions that call each other. */
static __always_inline void photograph_met_v8(struct walk *w)
{
	photograph_v8(w);
	photograph_v8_code(w);
}

#endif
