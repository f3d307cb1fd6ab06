/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Python functions on a stack: CPython 3.6 to 3.14.
 *
 *   thread pointer -> thread state -> frame -> frame -> ...
 *                                      | each has a code object: name, file, lines
 *
 * The evaluation function, whose native frame is on the stack, ran a run of
 * those frames: one until 3.10; since 3.11 a Python call needs no native one.
 * Which frames belong to which native frame is told by entry records, which
 * the evaluation function keeps among its own words; see enum activation.
 * Package lang/python finds the offsets, and names what is recorded here:
 *
 *   what    identity of the code object
 *   where   offset of the instruction, in bytes; all ones: before the first */
#ifndef ATYS_PYTHON_H
#define ATYS_PYTHON_H

#include "photographs.h"
#include "processes.h"

/* How to tell the frames of one native activation. */
enum activation {
	PYTHON_CALLS,	   /* one frame for each (3.6-3.9) */
	PYTHON_ENTRIES,	   /* likewise, and an entry record in each (3.10) */
	PYTHON_FLAGS,	   /* an entry record in each; its last frame is flagged (3.11) */
	PYTHON_ENTRY_SHIMS, /* an entry record in each; a shim ends its frames (3.12) */
	PYTHON_SHIMS,	   /* a shim in each ends its frames (3.13-3.14) */
};

#define PYTHON_RANGES 8
#define PYTHON_FRAME_BYTES 80	  /* of a frame that are read, since 3.11 */
#define PYTHON_OLD_FRAME_BYTES 128
#define PYTHON_CODE_BYTES 144	  /* of a code object */
#define PYTHON_OWNED_BY_SHIM 3
#define PYTHON_LATE (64 * 1024)	  /* bytes by which an activation may have been missed */

/* A process, as package lang/python found it. Offsets are of the layouts there. */
struct python_process {
	struct {
		u64 start, end;
	} evaluation[PYTHON_RANGES]; /* code of the evaluation function, by file offset */
	u64 code_type; /* address of the type of code objects */
	u64 current;   /* address of a pointer to the state of who holds the GIL, or 0 */
	u64 main_threads; /* address of a pointer to the first thread state of the main interpreter, or 0 */
	u64 next_thread;
	u32 activation;
	u32 block; /* from the thread pointer to a pointer to the block with */
	u32 slot;  /* the pointer to the thread state; without block: from the thread pointer */
	u32 top, entry, entry_frame, entry_previous;
	u32 frame_code, frame_previous, frame_instruction, frame_end;
	u32 code_first_line, code_file, code_name, code_lines, code_bytes;
	u32 string_length, string_state, string_ascii, string_other, kind_bit, ascii_bit;
	u32 bytes_length, bytes_data, type;
	u32 minor; /* of version 3.minor: tells the format of lines */
	u32 thread_pointer;
	u32 origin; /* the process that was read: this one, or what it was forked from */
};

PROCESSES_OF(python, LANGUAGE_PYTHON)

/* Words that were read, by a byte offset that user space chose. */
static __always_inline u64 python_word(const void *bytes, u32 offset)
{
	return *(u64 *)((char *)bytes + (offset & 255));
}

static __always_inline bool python_is_object(u64 address)
{
	return address >= 4096 && !(address & 7);
}

/* Python frames cannot be told from here on: the stack must not pass for whole. */
static __always_inline u32 python_broken(struct python_walk *s)
{
	s->frame = 0;
	s->broken = 1;
	return 0;
}

/* Reads where the frames of a thread state begin. */
static __always_inline void python_begin_state(struct python_walk *s, struct python_process *p, u64 state)
{
	s->state = state;
	s->entry = 0;
	if (!python_is_object(state) || (p->entry && READ_USER(&s->entry, 8, state + p->entry))) {
		python_broken(s);
		return;
	}
	u64 at = p->activation == PYTHON_FLAGS || p->activation == PYTHON_ENTRY_SHIMS ? s->entry + p->entry_frame : state + p->top;
	if (READ_USER(&s->frame, 8, at))
		python_broken(s);
}

/* Reads where the thread's frames begin. One without a thread state has none;
 * until 3.11, one that is in a sub-interpreter has two. */
static __always_inline void python_begin(struct python_walk *s, struct python_process *p)
{
	u64 thread = THREAD_POINTER(), base = thread, state = 0, current = 0, other = 0;
	bool unread = p->block && READ_USER(&base, 8, base + p->block);
	if (!unread && p->block && !base)
		return;
	if (unread || READ_USER(&state, 8, base + p->slot)) {
		python_broken(s);
		return;
	}
	if (p->current && !READ_USER(&current, 8, p->current) && current && current != state &&
	    !READ_USER(&other, 8, current + p->thread_pointer) && other == thread) {
		s->outer = state;
		state = current;
	}
	if (state)
		python_begin_state(s, p, state);
}

#define PYTHON_NAME_BYTES 256
#define PYTHON_FILE_BYTES 400
#define PYTHON_LINES_AT (PYTHON_NAME_BYTES + PYTHON_FILE_BYTES)
#define PYTHON_LINES_BYTES (PHOTOGRAPH_BYTES - PYTHON_LINES_AT)

/* What a photograph of a code object holds: values are numbered by this,
 * lengths count name, file and lines, bytes hold them at the places above. */
enum python_value {
	PYTHON_CODE,
	PYTHON_FIRST_LINE, /* minor << 56 | origin << 32 | line */
	PYTHON_NAME,
	PYTHON_NAME_STATE, /* length << 32 | state */
	PYTHON_FILE,
	PYTHON_FILE_STATE,
	PYTHON_LINES,
	PYTHON_LINES_LENGTH,
};

/* Copies a string: its beginning, or its end where that tells more. Gives the
 * bytes copied. */
static __always_inline u32 python_string(struct python_process *p, u8 *to, u32 room, u64 string, bool end, u64 *state)
{
	u64 length = 0;
	u32 flags = 0;
	if (!python_is_object(string) || READ_USER(&length, 8, string + p->string_length) ||
	    READ_USER(&flags, 4, string + p->string_state) || length >> 31)
		return 0;
	*state = length << 32 | flags;
	u64 from = string + ((flags >> (p->ascii_bit & 31)) & 1 ? p->string_ascii : p->string_other);
	u64 bytes = length * ((flags >> (p->kind_bit & 31)) & 7);
	if (bytes > room) {
		if (end)
			from += (bytes - room) & ~3ull;
		bytes = room;
	}
	u32 n = bytes;
	OPAQUE(n);
	if (n > room || n == 0 || READ_USER(to, n, from))
		return 0;
	return n;
}

/* Photographs the code object whose words were just read. */
STEP u32 python_photograph(struct walk *w, struct python_process *p)
{
	if (!w || !p)
		return 0;
	struct python_walk *s = &w->languages.python;
	struct photograph *photo = begin_photograph(w, LANGUAGE_PYTHON, s->what);
	if (!photo)
		return 0;
	u64 lines = python_word(w->python.words, p->code_lines), length = 0;
	photo->values[PYTHON_CODE] = s->code;
	photo->values[PYTHON_FIRST_LINE] = (u64)p->minor << 56 | (u64)p->origin << 32 | (u32)python_word(w->python.words, p->code_first_line);
	photo->values[PYTHON_NAME] = python_word(w->python.words, p->code_name);
	photo->values[PYTHON_FILE] = python_word(w->python.words, p->code_file);
	photo->values[PYTHON_LINES] = lines;
	photo->lengths[0] = python_string(p, photo->bytes, PYTHON_NAME_BYTES, photo->values[PYTHON_NAME], false,
					  &photo->values[PYTHON_NAME_STATE]);
	photo->lengths[1] = python_string(p, photo->bytes + PYTHON_NAME_BYTES, PYTHON_FILE_BYTES,
					  photo->values[PYTHON_FILE], true, &photo->values[PYTHON_FILE_STATE]);
	if (python_is_object(lines) && !READ_USER(&length, 8, lines + p->bytes_length)) {
		u32 n = length > PYTHON_LINES_BYTES ? PYTHON_LINES_BYTES : length;
		OPAQUE(n);
		if (n > 0 && n <= PYTHON_LINES_BYTES && !READ_USER(photo->bytes + PYTHON_LINES_AT, n, lines + p->bytes_data))
			photo->lengths[2] = n;
		photo->values[PYTHON_LINES_LENGTH] = length;
	}
	end_photograph(photo);
	return 0;
}

/* The offset of a frame's instruction in its code. */
static __always_inline u64 python_instruction(struct walk *w, struct python_process *p, u64 code)
{
	u64 at = python_word(w->python.words, p->frame_instruction);
	if (p->activation == PYTHON_CALLS)
		at = (u64)(s32)at;
	else if (p->activation == PYTHON_ENTRIES) /* counts instructions, of two bytes */
		at = (u64)(s32)at * 2;
	else
		at -= code + p->code_bytes;
	return at >> 31 ? 0xffffffff : at;
}

#define PYTHON_STRING 24 /* the first of the words that a string is read into */
#define PYTHON_NO_HASH (~0ull)

/* Tells the code object whose words were just read from others. Where functions
 * are made again and again, another one has all the same addresses, but not the
 * same name: so its hash counts, or its beginning while it has none. */
STEP u32 python_identify(struct walk *w, struct python_process *p)
{
	if (!w || !p)
		return 0;
	struct python_walk *s = &w->languages.python;
	u64 *string = &w->python.words[PYTHON_STRING];
	u64 name = python_word(w->python.words, p->code_name), file = python_word(w->python.words, p->code_file);
	u64 more = mix(mix(name, file), (u32)python_word(w->python.words, p->code_first_line));
	more = mix(more, python_word(w->python.words, p->code_lines));
	if (!READ_USER(string, 16, name + p->string_length)) { /* its length, then its hash */
		u32 n = string[0] < 40 ? string[0] : 40;
		more = mix(more, mix(string[0], string[1]));
		__builtin_memset(string + 2, 0, 40);
		if (string[1] == PYTHON_NO_HASH && n && !READ_USER(string + 2, n, name + p->string_ascii))
			more = mix(mix(mix(more, string[2]), mix(string[3], string[4])), mix(string[5], string[6]));
	}
	s->what = s->known = identity(s->code, more);
	return 0;
}

#define PYTHON_MORE 1 /* the activation has more frames */
#define PYTHON_END 0  /* that was its last, or there is none */

/* Reads and tells the code object of a frame, unless the frame before it has the
 * same: functions that call themselves are read once. */
static __always_inline bool python_read_code(struct walk *w, struct python_process *p, struct python_walk *s, u64 code)
{
	if (s->known && code == s->code)
		return true;
	s->known = 0;
	if (!python_is_object(code) || READ_USER(w->python.words, PYTHON_CODE_BYTES, code))
		return false;
	if (python_word(w->python.words, p->type) != p->code_type)
		return false;
	/* else it is a piece of the interpreter that looks like code */
	if (python_word(w->python.words, p->code_name) != python_word(w->python.words, p->code_file)) {
		s->code = code;
		python_identify(w, p);
	}
	return true;
}

/* Adds one frame, and goes to the one that called it. */
STEP u32 add_python_frame(struct walk *w, struct python_process *p)
{
	if (!w || !p)
		return PYTHON_END;
	struct python_walk *s = &w->languages.python;
	u64 frame = s->frame;
	if (!frame)
		return PYTHON_END;
	s->what = 0;
	if (!python_is_object(frame))
		return python_broken(s);
	bool old = p->activation <= PYTHON_ENTRIES;
	if (old ? READ_USER(w->python.words, PYTHON_OLD_FRAME_BYTES, frame) : READ_USER(w->python.words, PYTHON_FRAME_BYTES, frame))
		return python_broken(s);
	u8 end = python_word(w->python.words, p->frame_end);
	u64 code = python_word(w->python.words, p->frame_code) & ~7ull; /* since 3.14 low bits are tags */
	s->frame = python_word(w->python.words, p->frame_previous);
	if (p->activation >= PYTHON_ENTRY_SHIMS && end == PYTHON_OWNED_BY_SHIM) {
		s->shim = frame;
		return PYTHON_END;
	}
	u64 where = python_instruction(w, p, code);
	if (!python_read_code(w, p, s, code))
		return python_broken(s);
	if (s->known)
		push_language_frame(w, LANGUAGE_PYTHON, s->known, where);
	if (old || (p->activation == PYTHON_FLAGS && end))
		return PYTHON_END;
	return s->frame ? PYTHON_MORE : PYTHON_END;
}

/* Whether the native frame just walked is one of the evaluation function. */
static __always_inline bool python_evaluates(struct walk *w, struct python_process *p)
{
	u64 at = w->languages.offset;
	for (int i = 0; i < PYTHON_RANGES; i++) {
		if (at >= p->evaluation[i].start && at < p->evaluation[i].end)
			return true;
	}
	return false;
}

/* Where an address lies to the words of the native frame just walked. */
enum python_place {
	PYTHON_ABOVE, /* in a caller's, or not on this stack */
	PYTHON_WITHIN,
	PYTHON_BELOW, /* in one that was passed: it was not seen to evaluate */
};

static __always_inline enum python_place python_place(struct walk *w, u64 address)
{
	if (address >= w->languages.sp)
		return address < w->sp ? PYTHON_WITHIN : PYTHON_ABOVE;
	return w->languages.sp - address < PYTHON_LATE ? PYTHON_BELOW : PYTHON_ABOVE;
}

/* Until 3.9 the innermost activation has no frame yet while it begins, and none
 * any more while it returns: then a register holds one that the thread's
 * innermost calls, but does not list. */
static __always_inline bool python_is_between(struct walk *w, struct python_walk *s, struct python_process *p)
{
	static const u8 may_hold[] = {3, 4, 5, 6, 12, 13, 14, 15}; /* rbx rsi rdi rbp r12 to r15 */
	u64 type = 0, other;
	if (READ_USER(&type, 8, s->frame + p->type))
		return false;
#pragma unroll
	for (u32 i = 0; i < sizeof(may_hold); i++) {
		u64 frame = w->regs[may_hold[i]], caller = 0;
		if (!python_is_object(frame) || frame == s->frame || READ_USER(&caller, 8, frame + p->frame_previous))
			continue;
		if (caller == s->frame && !READ_USER(&other, 8, frame + p->type) && other == type)
			return true;
	}
	return false;
}

/* Adds the frames of one activation. The photograph is not taken within
 * add_python_frame because stacks of functions that call each other add up. */
STEP u32 add_python_run(struct walk *w, struct python_process *p)
{
	if (!w || !p)
		return 0;
	for (int i = 0; i < MAX_FRAMES / 2; i++) {
		u32 more = add_python_frame(w, p);
		if (w->languages.python.what)
			python_photograph(w, p);
		if (more != PYTHON_MORE)
			return 0;
	}
	return python_broken(&w->languages.python); /* a cycle, or deeper than any stack that is kept */
}

/* Adds the frames up to the next shim, if that lies in the native frame or in
 * one that was passed; else only notes where it is. */
static __always_inline enum python_place add_python_to_shim(struct walk *w, struct python_walk *s, struct python_process *p)
{
	if (s->entry ? python_place(w, s->entry) == PYTHON_ABOVE : !python_evaluates(w, p))
		return PYTHON_ABOVE;
	w->python.frame = s->frame;
	w->python.hash = w->hash;
	w->python.count = w->count;
	s->shim = 0;
	add_python_run(w, p);
	s->entry = 0;
	enum python_place place = s->shim ? python_place(w, s->shim) : PYTHON_WITHIN;
	if (place == PYTHON_ABOVE) {
		s->entry = s->shim;
		s->frame = w->python.frame;
		w->hash = w->python.hash;
		w->count = w->python.count;
	}
	return place;
}

/* Adds the frames of the next entry record, likewise. */
static __always_inline enum python_place add_python_entry(struct walk *w, struct python_walk *s, struct python_process *p)
{
	enum python_place place = python_place(w, s->entry);
	if (place == PYTHON_ABOVE)
		return place;
	if (READ_USER(&s->entry, 8, s->entry + p->entry_previous)) {
		python_broken(s);
		return PYTHON_ABOVE;
	}
	add_python_run(w, p);
	return place;
}

/* Adds the frames of one activation, if the native frame has one. */
STEP u32 add_python_activation(struct walk *w)
{
	if (!w)
		return PYTHON_ABOVE;
	struct python_process *p = python_process_of(w->owner);
	struct python_walk *s = &w->languages.python;
	if (!p || !s->frame)
		return PYTHON_ABOVE;
	if (p->activation == PYTHON_SHIMS)
		return add_python_to_shim(w, s, p);
	if (p->activation != PYTHON_CALLS)
		return add_python_entry(w, s, p);
	if (!python_evaluates(w, p) || (w->count == 1 && python_is_between(w, s, p)))
		return PYTHON_ABOVE;
	add_python_run(w, p);
	return PYTHON_WITHIN;
}

/* Finds the thread's frames at the first native frame of the runtime, and those
 * of its other state where the first are all added. */
STEP u32 find_python(struct walk *w)
{
	if (!w)
		return 0;
	struct python_walk *s = &w->languages.python;
	struct python_process *p = python_process_of(w->owner);
	u64 outer = s->outer;
	if (!p)
		return 0;
	if (!(w->languages.begun & RUNS(LANGUAGE_PYTHON))) {
		w->languages.begun |= RUNS(LANGUAGE_PYTHON);
		python_begin(s, p);
	} else if (outer) {
		s->outer = 0;
		python_begin_state(s, p, outer);
	}
	return 0;
}

#define PYTHON_STATES 64 /* of an interpreter's threads that are looked at */

/* Where all frames are added and the evaluation function was still running some,
 * those are of another interpreter, which started this one. Since 3.12 the
 * thread does not tell them, but the main interpreter lists its threads. If it
 * was started by yet another one the stack must not pass for whole. */
STEP u32 miss_python(struct walk *w)
{
	if (!w)
		return 0;
	struct python_process *p = python_process_of(w->owner);
	struct python_walk *s = &w->languages.python;
	if (!p || p->activation < PYTHON_ENTRY_SHIMS || !s->code || !python_evaluates(w, p))
		return 0;
	u64 thread = THREAD_POINTER(), state = 0, other = 0;
	bool unread = !p->main_threads || READ_USER(&state, 8, p->main_threads);
	for (int i = 0; i < PYTHON_STATES && !unread && python_is_object(state); i++) {
		if (READ_USER(&other, 8, state + p->thread_pointer))
			break;
		if (other == thread) {
			if (state == s->state)
				break;
			python_begin_state(s, p, state);
			return 0;
		}
		unread = READ_USER(&state, 8, state + p->next_thread);
	}
	w->languages.cut = END_UNSUPPORTED;
	return 0;
}

/* Adds the Python functions that a native frame of the runtime was running. */
static __always_inline void add_python(struct walk *w)
{
	struct python_walk *s = &w->languages.python;
	if (!s->frame && (s->outer || !(w->languages.begun & RUNS(LANGUAGE_PYTHON))))
		find_python(w);
	else if (!s->frame)
		miss_python(w);
	for (int i = 0; i < 4 && s->frame; i++) {
		if (add_python_activation(w) != PYTHON_BELOW)
			break;
	}
}

#endif
