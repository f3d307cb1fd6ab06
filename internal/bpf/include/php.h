/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* PHP functions on a stack: PHP 8.2 without threads (NTS), with and without
 * opcache and its JIT.
 *
 *   EG(current_execute_data) -> execute_data -> execute_data -> ...
 *                                   | each has a zend_function: name, class, file
 *
 * execute_ex, whose native frame is on the stack, ran the frames up to one that
 * is marked as its top. Functions written in C, such as array_map, have frames
 * of the same kind above those of their callers.
 *
 * Code of the JIT lies in memory shared with the process's siblings. It keeps
 * no frame of its own but runs in that of execute_ex, which left room for it.
 * Other code in memory is of regular expressions (pcre.h).
 * Package lang/php finds the addresses, and names what is recorded here:
 *
 *   what    identity of the function
 *   where   line being executed, and PHP_IS_CODE, PHP_IS_TOP
 */
#ifndef ATYS_PHP_H
#define ATYS_PHP_H

#include "pcre.h"
#include "photographs.h"
#include "processes.h"

/* A process, as package lang/php found it. */
struct php_process {
	u64 current; /* address of EG(current_execute_data) */
	u64 body;    /* an address in execute_ex where its frame is whole */
	struct {
		u64 start, end;
	} execute[2], /* code of execute_ex, by file offset; the second part may be empty */
	  fiber;      /* code that is at the bottom of a fiber's stack */
};

PROCESSES_OF(php, LANGUAGE_PHP)

#define PHP_FRAME_PREVIOUS 48

/* Call information, in the type of $this. */
#define PHP_CALL_CODE (1u << 16) /* a file or eval, no function */
#define PHP_CALL_TOP (1u << 17)	 /* the first of one execute_ex */
#define PHP_CALL_GENERATOR (1u << 24)

#define PHP_INTERNAL 1 /* a bit of the type: written in C */
#define PHP_USER_LAST 80 /* u32: how many instructions it has; 8 later: where */
#define PHP_USER_FILE 152 /* zend_string; then the first and the last line, u32 */
#define PHP_CLASS_NAME 8
#define PHP_OP_BYTES 32
#define PHP_OP_LINE 24
#define PHP_STRING_HASH 8 /* then the length, then the bytes */
#define PHP_STRING_BYTES 24

#define PHP_IS_CODE (1ull << 32)
#define PHP_IS_TOP (1ull << 33)

/* PHP frames cannot be told from here on: the stack must not pass for whole. */
static __always_inline u32 php_broken(struct php_walk *s)
{
	s->frame = 0;
	s->broken = 1;
	return 0;
}

/* What a string says. PHP keeps the hash of most; names that a namespace was
 * put before have none, and are told by their ends. */
static __always_inline u64 php_string_identity(struct php_words *v, u64 string)
{
	u64 *head = v->head, *ends = v->ends;
	if (!string || READ_USER(head, sizeof(v->head), string + PHP_STRING_HASH))
		return string;
	if (head[0])
		return mix(mix(0, head[0]), head[1]);
	u64 length = head[1], at = string + PHP_STRING_BYTES;
	u64 skip = length > 32 ? length - 32 : 0;
	if (READ_USER(ends, sizeof(v->ends), at + skip))
		return mix(mix(0, string), length);
	if (length < 32) /* what follows a short one is left from others */
		ends[3] = length < 24 ? 0 : ends[3] & ((1ull << ((length & 7) * 8)) - 1);
	if (length < 24)
		ends[2] = length < 16 ? 0 : ends[2] & ((1ull << ((length & 7) * 8)) - 1);
	if (length < 16)
		ends[1] = length < 8 ? 0 : ends[1] & ((1ull << ((length & 7) * 8)) - 1);
	if (length < 8)
		ends[0] &= (1ull << (length * 8)) - 1;
	return mix(mix(mix(mix(mix(0, length), ends[0]), ends[1]), ends[2]), ends[3]);
}

#define PHP_NAME_BYTES 512
#define PHP_FILE_AT (2 * PHP_NAME_BYTES)
#define PHP_FILE_BYTES (PHOTOGRAPH_BYTES - PHP_FILE_AT)

/* What a photograph of a function holds: class, name and file at these places,
 * and the whole length of each, which may not have had room. */
enum php_value {
	PHP_TYPE,
	PHP_LINES, /* last << 32 | first */
};

static __always_inline u32 php_copy(u8 *to, u32 room, u64 string)
{
	u64 length = 0;
	if (!is_object(string) || READ_USER(&length, 8, string + PHP_STRING_HASH + 8) || length >> 31)
		return 0;
	u32 n = length > room ? room : length;
	OPAQUE(n);
	if (n > room || n == 0 || READ_USER(to, n, string + PHP_STRING_BYTES))
		return 0;
	return length;
}

STEP u32 php_photograph(struct walk *w)
{
	if (!w || !w->languages.php.met)
		return 0;
	struct php_words *v = &w->script.php;
	struct photograph *photo = begin_photograph(w, LANGUAGE_PHP, w->languages.php.what);
	if (!photo)
		return 0;
	photo->values[PHP_TYPE] = v->function.type;
	photo->values[PHP_LINES] = v->file[1];
	photo->lengths[0] = php_copy(photo->bytes, PHP_NAME_BYTES, v->class);
	photo->lengths[1] = php_copy(photo->bytes + PHP_NAME_BYTES, PHP_NAME_BYTES, v->function.name);
	photo->lengths[2] = php_copy(photo->bytes + PHP_FILE_AT, PHP_FILE_BYTES, v->file[0]);
	end_photograph(photo);
	return 0;
}

/* What tells the function from those that were, or will be, at its address: a
 * server frees its functions after each request. False if it is none. */
static __always_inline bool php_identify(struct walk *w, struct php_walk *s, u64 function)
{
	struct php_words *v = &w->script.php;
	s->met = function != s->function;
	if (!s->met)
		return true; /* a recursion */
	v->class = v->file[0] = v->file[1] = 0;
	if (!is_object(function) || READ_USER(&v->function, sizeof(v->function), function) || v->function.type == 0 ||
	    v->function.type > 4)
		return false;
	s->user = !(v->function.type & PHP_INTERNAL);
	s->named = v->function.name != 0;
	if (v->function.scope && READ_USER(&v->class, 8, v->function.scope + PHP_CLASS_NAME))
		return false;
	if (s->user && READ_USER(v->file, sizeof(v->file), function + PHP_USER_FILE))
		return false;
	u64 more = mix(php_string_identity(v, v->function.name), php_string_identity(v, v->class));
	s->function = function;
	s->what = identity(function, mix(mix(more, php_string_identity(v, v->file[0])), v->file[1]));
	return true;
}

/* The instruction of the innermost frame is in a register, not yet in the
 * frame: while r14 holds the frame, r15 holds one of its function's. */
static __always_inline u64 php_live_instruction(struct walk *w, u64 frame, u64 kept, u64 function)
{
	struct {
		u32 last, unused;
		u64 first;
	} code;
	if (w->regs[14] != frame || READ_USER(&code, sizeof(code), function + PHP_USER_LAST))
		return kept;
	u64 at = w->regs[15] - code.first;
	return at < (u64)code.last * PHP_OP_BYTES ? w->regs[15] : kept;
}

#define PHP_MORE 1 /* execute_ex has more frames */
#define PHP_END 0  /* that was its last, or there is none */

/* Adds one frame, and goes to the one that called it. */
STEP u32 add_php_frame(struct walk *w)
{
	u32 line = 0;
	if (!w)
		return PHP_END;
	struct php_walk *s = &w->languages.php;
	struct php_frame *f = &w->script.php.frame;
	u64 frame = s->frame;
	s->met = 0;
	if (!frame)
		return PHP_END;
	if (!is_object(frame) || READ_USER(f, sizeof(*f), frame))
		return php_broken(s);
	s->frame = f->previous;
	if (!f->function)
		return PHP_MORE; /* put there by the engine, to be found by warnings */
	if (!php_identify(w, s, f->function))
		return php_broken(s);
	if (!s->user) {
		if (s->named) /* else it stands for a fiber's beginning */
			push_language_frame(w, LANGUAGE_PHP, s->what, 0);
		return PHP_MORE; /* its top mark is for no execute_ex */
	}
	if (frame == s->innermost) /* compiled code keeps it for calls of functions only, not of helpers */
		f->opline = s->compiled ? 0 : php_live_instruction(w, frame, f->opline, f->function);
	if (f->opline)
		READ_USER(&line, 4, f->opline + PHP_OP_LINE);
	u64 kind = (f->info & PHP_CALL_CODE ? PHP_IS_CODE : 0) | (f->info & PHP_CALL_TOP ? PHP_IS_TOP : 0);
	push_language_frame(w, LANGUAGE_PHP, s->what, kind | line);
	if (f->info & PHP_CALL_GENERATOR && !s->frame)
		return php_broken(s); /* just being resumed: by whom, it is not told yet */
	return f->info & PHP_CALL_TOP ? PHP_END : PHP_MORE;
}

static __always_inline void php_begin(struct walk *w, struct php_walk *s, struct php_process *p)
{
	w->languages.begun |= RUNS(LANGUAGE_PHP);
	if (READ_USER(&s->frame, 8, p->current))
		php_broken(s);
	s->innermost = s->frame;
	s->resumed = 0;
}

/* Whether the native frame just walked is one of execute_ex. */
static __always_inline bool php_executes(struct walk *w, struct php_process *p)
{
	return IN_CODE(w->languages.offset, p->execute);
}

/* Adds one of the PHP functions that a native frame was running, if it is
 * execute_ex, and tells whether there are more. */
STEP u32 add_php(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct php_walk *s = &w->languages.php;
	if (!w->languages.adding) {
		struct php_process *p = php_process_of(w->owner);
		if (!p || !php_executes(w, p))
			return 0;
		if (!(w->languages.begun & RUNS(LANGUAGE_PHP))) {
			php_begin(w, s, p);
			if (w->languages.before == WALKED_WITH_FRAME_MISSING)
				return 0;
			if (w->languages.before == WALKED_WITH_FRAME_LEFT && READ_USER(&s->frame, 8, s->frame + PHP_FRAME_PREVIOUS))
				php_broken(s);
		}
		if (!s->frame && !s->broken) {
			if (walk_again(w, WALKED_WITH_FRAME_MISSING))
				return 0;
			php_broken(s);
		}
	}
	u32 more = add_php_frame(w);
	php_photograph(w);
	if (s->resumed) {
		if (s->frame)
			return 0;
		return s->broken ? END_UNSUPPORTED : END_COMPLETE;
	}
	w->languages.adding = more == PHP_MORE;
	return 0;
}

/* Whether a walk that ended has seen all frames. */
static __always_inline u32 end_php(struct walk *w)
{
	struct php_walk *s = &w->languages.php;
	if (s->frame && walk_again(w, WALKED_WITH_FRAME_LEFT))
		return 0;
	return s->frame || s->broken ? END_UNSUPPORTED : END_COMPLETE;
}

/* The stack of a fiber ends in code without unwind information. Who resumed it
 * is on another stack, but in the same list of frames. */
STEP u32 end_php_fiber(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct php_process *p = php_process_of(w->owner);
	if (!p || w->languages.offset < p->fiber.start || w->languages.offset >= p->fiber.end)
		return END_NO_UNWIND;
	struct php_walk *s = &w->languages.php;
	if (!(w->languages.begun & RUNS(LANGUAGE_PHP)))
		php_begin(w, s, p);
	s->resumed = w->languages.adding = 1;
	return 0;
}

/* Goes on from code of the JIT: as from execute_ex, in whose frame it runs. */
static __always_inline u32 step_php_code(struct walk *w)
{
	push_frame(w, FRAME_ANONYMOUS | ((w->ip - w->is_return) & ADDRESS_BITS));
	struct php_process *p = php_process_of(w->owner);
	if (!p)
		return END_NO_UNWIND;
	w->languages.php.compiled = 1;
	w->ip = p->body;
	w->is_return = 0;
	return 0;
}

#endif
