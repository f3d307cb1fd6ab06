/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Ruby methods on a stack: CRuby 3.1, with its interpreter.
 *
 *   thread pointer -> TLS block of libruby -> execution context -> VM stack
 *   VM stack: control frame, control frame, ...   each has an iseq (code) and
 *                                                 an environment (ep)
 *
 * rb_vm_exec, whose native frame is on the stack, ran the control frames up to
 * one that is marked FINISH. Methods written in C have control frames too,
 * without an iseq. Package lang/ruby finds the addresses, and names what is
 * recorded here:
 *
 *   what    identity of the iseq and of the method it was called as
 *   where   line being executed
 */
#ifndef ATYS_RUBY_H
#define ATYS_RUBY_H

#include "photographs.h"
#include "processes.h"

/* A process, as package lang/ruby found it. */
struct ruby_process {
	u64 module;  /* offset of libruby's entry in a thread's DTV */
	u64 context; /* and of ruby_current_ec in its TLS block */
	u64 symbols; /* address of ruby_global_symbols */
	u64 classpath, temporary_classpath, attached; /* ids of variables that classes have */
	struct {
		u64 start, end;
	} execute[2]; /* code of rb_vm_exec, by file offset; the second part may be empty */
};

PROCESSES_OF(ruby, LANGUAGE_RUBY)

#define RUBY_FRAME_BYTES 64 /* of a control frame; callers' lie above */

/* Flags of a frame, in ep[0]. */
#define RUBY_LOCAL 0x2
#define RUBY_FINISH 0x20
#define RUBY_BMETHOD 0x40 /* a block that define_method made a method of */
#define RUBY_C 0x80
#define RUBY_MAGIC 0x7fff0001
#define RUBY_MAGIC_C 0x55550001
#define RUBY_MAGIC_DUMMY 0x79990001

/* Objects of the VM itself say in their flags which they are. */
#define RUBY_TYPE 0x1f
#define RUBY_IMEMO 0x1a
#define RUBY_IMEMO_TYPE(flags) ((flags) >> 12 & 15)
#define RUBY_IMEMO_SVAR 2
#define RUBY_IMEMO_METHOD 6
#define RUBY_ARRAY 0x07
#define RUBY_STRING 0x05
#define RUBY_CLASS 0x02
#define RUBY_MODULE 0x03
#define RUBY_SINGLETON (1u << 12) /* of a class */
#define RUBY_EMBEDDED (1u << 13)  /* of an array; of a string: it is not */
#define RUBY_CLASS_EXTENSION 24
#define RUBY_CLASS_SERIAL 32

/* rb_iseq_constant_body, in words; an iseq has it at 16. */
enum ruby_body {
	RUBY_SIZE, /* the upper half */
	RUBY_ENCODED,
	RUBY_PATH = 8,
	RUBY_BASE_LABEL,
	RUBY_LABEL,
	RUBY_FIRST_LINE, /* a number as Ruby keeps it */
	RUBY_LINES = 15, /* 12 bytes each, the line first */
	RUBY_LINE_COUNT = 17, /* the lower half */
	RUBY_LINE_INDEX,
};

/* Frames of Ruby cannot be told from here on: the stack must not pass for whole. */
static __always_inline u32 ruby_broken(struct ruby_walk *s)
{
	s->frame = 0;
	s->broken = 1;
	return 0;
}

/* Reads where the thread's frames begin. One that never ran Ruby has none. */
static __always_inline void ruby_begin(struct ruby_walk *s, struct ruby_words *v, struct ruby_process *p)
{
	u64 *at = &v->frame.pc, *stack = v->object; /* its address, its words, the current frame */
	if (READ_USER(at, 8, THREAD_POINTER() + 8) || READ_USER(at, 8, *at + p->module))
		return;
	if (!is_object(*at) || READ_USER(at, 8, *at + p->context) || !*at)
		return;
	if (!is_object(*at) || READ_USER(stack, 24, *at)) {
		ruby_broken(s);
		return;
	}
	s->frame = stack[2];
	s->end = stack[0] + stack[1] * 8;
	if (s->frame < stack[0] || s->frame > s->end || !is_object(s->frame))
		ruby_broken(s);
}

static __always_inline u32 ruby_ones(u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return bits * 0x0101010101010101ull >> 56;
}

/* How many rows of lines begin up to a place: Ruby's succinct index. The first
 * 54 places have 7 bits each, 9 in a word; then come blocks for 512 places:
 *
 *   rank u32 | unused u32 | ranks of its words, 9 bits each | bits u64[8]
 */
static __always_inline u32 ruby_line_row(u64 index, u32 place)
{
	u64 word = 0, head[2] = {};
	if (place < 54) {
		if (READ_USER(&word, 8, index + place / 9 * 8))
			return 0;
		return word >> (place % 9 * 7) & 0x7f;
	}
	place -= 54;
	u64 block = index + 48 + place / 512 * 80;
	u32 at = place % 512 / 64;
	if (READ_USER(head, sizeof(head), block) || READ_USER(&word, 8, block + 16 + at * 8))
		return 0;
	u32 rank = at ? head[1] >> ((at - 1) * 9 & 63) & 0x1ff : 0;
	return (u32)head[0] + rank + ruby_ones(word << (63 - place % 64));
}

/* The line that a frame executes: of the instruction before pc. */
static __always_inline u32 ruby_line(struct ruby_words *v, u64 pc)
{
	u32 rows = v->body[RUBY_LINE_COUNT], row = 1, line = 0;
	u64 place = (pc - v->body[RUBY_ENCODED]) / 8;
	if (place > v->body[RUBY_SIZE] >> 32 || rows == 0)
		return 0;
	if (place)
		place--;
	if (rows > 1)
		row = ruby_line_row(v->body[RUBY_LINE_INDEX], place);
	if (row == 0 || row > rows || READ_USER(&line, 4, v->body[RUBY_LINES] + (u64)(row - 1) * 12))
		return 0;
	return line;
}

/* Finds the method that a frame belongs to, through the environments of the
 * blocks around it, and tells whether all could be read. */
static __always_inline bool ruby_find_method(struct ruby_words *v, u64 ep)
{
	v->method = (struct ruby_method){};
	for (int i = 0; i < 8; i++) {
		u64 *words = v->object, flags = 0; /* method or scope; environment around; flags */
		if (!is_object(ep))
			return true;
		if (READ_USER(words, 24, ep - 16))
			return false;
		u64 entry = words[0];
		if (is_object(entry)) {
			if (READ_USER(&flags, 8, entry))
				return false;
			if ((flags & RUBY_TYPE) == RUBY_IMEMO && RUBY_IMEMO_TYPE(flags) == RUBY_IMEMO_SVAR) {
				if (READ_USER(&entry, 8, entry + 8)) /* which stands in its place, and keeps it */
					return false;
				if (!is_object(entry))
					return true;
				if (READ_USER(&flags, 8, entry))
					return false;
			}
			if ((flags & RUBY_TYPE) == RUBY_IMEMO && RUBY_IMEMO_TYPE(flags) == RUBY_IMEMO_METHOD)
				return !READ_USER(&v->method, sizeof(v->method), entry);
		}
		if (words[2] & RUBY_LOCAL)
			return true;
		ep = words[1] & ~3ull;
	}
	return true;
}

#define RUBY_CLASS_BYTES 384
#define RUBY_LABEL_AT RUBY_CLASS_BYTES
#define RUBY_LABEL_BYTES 384
#define RUBY_METHOD_AT (RUBY_LABEL_AT + RUBY_LABEL_BYTES)
#define RUBY_METHOD_BYTES 256
#define RUBY_FILE_AT (RUBY_METHOD_AT + RUBY_METHOD_BYTES)
#define RUBY_FILE_BYTES (PHOTOGRAPH_BYTES - RUBY_FILE_AT)

/* What a photograph of a frame holds: the method's class, the label of the
 * code, the method's name and the file at these places, and the whole length
 * of each, which may not have had room. */
enum ruby_value {
	RUBY_FRAME_FLAGS,
	RUBY_IS_SINGLETON, /* the class is that of an object alone: of a class, mostly */
	RUBY_START_LINE,
};

/* Copies a string, and gives its length. */
static __always_inline u32 ruby_copy(struct ruby_words *v, u8 *to, u32 room, u64 string)
{
	u64 *words = v->object; /* flags, class, length or bytes, address or bytes */
	if (!is_object(string) || READ_USER(words, 32, string) || (words[0] & RUBY_TYPE) != RUBY_STRING)
		return 0;
	bool apart = words[0] & RUBY_EMBEDDED;
	u64 length = apart ? words[2] : words[0] >> 14 & 31;
	u64 from = apart ? words[3] : string + 16;
	if (length >> 31)
		return 0;
	u32 n = length > room ? room : length;
	OPAQUE(n);
	if (n > room || n == 0 || READ_USER(to, n, from))
		return 0;
	return length;
}

/* An element of an array; 0: there is none. */
static __always_inline u64 ruby_element(struct ruby_words *v, u64 array, u64 index)
{
	u64 *words = v->object, element = 0; /* flags, class, length, unused, address */
	if (!is_object(array) || READ_USER(words, sizeof(v->object), array) || (words[0] & RUBY_TYPE) != RUBY_ARRAY)
		return 0;
	bool embedded = words[0] & RUBY_EMBEDDED;
	u64 length = embedded ? words[0] >> 15 & 3 : words[2];
	if (index >= length || READ_USER(&element, 8, (embedded ? array + 16 : words[4]) + index * 8))
		return 0;
	return element;
}

#define RUBY_LAST_OPERATOR 170 /* ids up to here are numbers; others have flags in the lowest 4 bits */

/* The string of an id: ids are kept in arrays of 512, two elements for each. */
static __always_inline u64 ruby_id_string(struct ruby_words *v, struct ruby_process *p, u64 id)
{
	u64 *symbols = v->object; /* last number u32, table, ids */
	u64 number = id > RUBY_LAST_OPERATOR ? id >> 4 : id;
	if (READ_USER(symbols, 24, p->symbols) || number > (u32)symbols[0])
		return 0;
	return ruby_element(v, ruby_element(v, symbols[2], number / 512), number % 512 * 2);
}

static __always_inline u64 ruby_class_variable(struct ruby_words *v, u64 class, u64 id, u64 or_id)
{
	u64 extension = 0, at = 0, *entry = v->object; /* hash, id, value */
	struct ruby_table *table = &v->table;
	if (READ_USER(&extension, 8, class + RUBY_CLASS_EXTENSION) || READ_USER(&at, 8, extension + 8) ||
	    READ_USER(table, sizeof(*table), at))
		return 0;
	for (u64 i = 0; i < 8; i++) {
		if (table->first + i >= table->bound || READ_USER(entry, 24, table->entries + (table->first + i) * 24))
			return 0;
		if (entry[1] == id || entry[1] == or_id)
			return entry[2];
	}
	return 0;
}

/* Copies the name of the class that a method belongs to: of a singleton class,
 * that of the class whose it is. */
static __always_inline void ruby_photograph_class(struct ruby_words *v, struct ruby_process *p, struct photograph *photo)
{
	u64 flags = 0, class = v->method.owner;
	if (!is_object(class) || READ_USER(&flags, 8, class))
		return;
	if ((flags & RUBY_TYPE) == RUBY_CLASS && flags & RUBY_SINGLETON) {
		class = ruby_class_variable(v, class, p->attached, p->attached);
		if (!is_object(class) || READ_USER(&flags, 8, class))
			return;
		photo->values[RUBY_IS_SINGLETON] = 1;
	}
	if ((flags & RUBY_TYPE) != RUBY_CLASS && (flags & RUBY_TYPE) != RUBY_MODULE)
		return;
	u64 name = ruby_class_variable(v, class, p->classpath, p->temporary_classpath);
	photo->lengths[0] = ruby_copy(v, photo->bytes, RUBY_CLASS_BYTES, name);
}

STEP u32 ruby_photograph(struct walk *w)
{
	u64 id = 0, flags = 0;
	if (!w)
		return 0;
	struct ruby_process *p = ruby_process_of(w->owner);
	struct ruby_walk *s = &w->languages.ruby;
	struct ruby_words *v = &w->script.ruby;
	if (!p || !s->met)
		return 0;
	struct photograph *photo = begin_photograph(w, LANGUAGE_RUBY, s->what);
	if (!photo)
		return 0;
	photo->values[RUBY_FRAME_FLAGS] = s->flags;
	if (v->method.owner)
		ruby_photograph_class(v, p, photo);
	if (!s->in_c) {
		photo->values[RUBY_START_LINE] = v->body[RUBY_FIRST_LINE] >> 1;
		photo->lengths[1] = ruby_copy(v, photo->bytes + RUBY_LABEL_AT, RUBY_LABEL_BYTES, v->body[RUBY_LABEL]);
		u64 path = v->body[RUBY_PATH]; /* or an array of it, and of the absolute one */
		if (is_object(path) && !READ_USER(&flags, 8, path) && (flags & RUBY_TYPE) == RUBY_ARRAY)
			path = ruby_element(v, path, 0);
		photo->lengths[3] = ruby_copy(v, photo->bytes + RUBY_FILE_AT, RUBY_FILE_BYTES, path);
	}
	READ_USER(&id, 8, v->method.definition + 32); /* its original name */
	photo->lengths[2] = ruby_copy(v, photo->bytes + RUBY_METHOD_AT, RUBY_METHOD_BYTES, ruby_id_string(v, p, id));
	end_photograph(photo);
	return 0;
}

/* What tells code and method from those that were, or will be, at their
 * addresses. A method has its name's id and its class's number; other code is
 * told by the beginning of its label. */
static __always_inline u64 ruby_identity(struct ruby_walk *s, struct ruby_words *v)
{
	u64 serial = 0, *label = v->object;
	u64 more = mix(0, s->flags & (RUBY_C | RUBY_BMETHOD));
	if (!s->in_c) {
		more = mix(mix(more, v->body[RUBY_ENCODED]), v->body[RUBY_PATH]);
		more = mix(mix(more, v->body[RUBY_LABEL]), v->body[RUBY_FIRST_LINE]);
	}
	if (v->method.owner) {
		READ_USER(&serial, 8, v->method.owner + RUBY_CLASS_SERIAL);
		return identity(s->in_c ? 0 : s->iseq, mix(mix(mix(more, serial), v->method.id), v->method.owner));
	}
	label[2] = label[3] = 0;
	READ_USER(label, 32, v->body[RUBY_LABEL]);
	return identity(s->in_c ? 0 : s->iseq, mix(mix(more, label[2]), label[3]));
}

#define RUBY_MORE 1 /* rb_vm_exec has more frames */
#define RUBY_END 0  /* that was its last, or there is none */

/* Adds one frame, and goes to the one that called it. */
STEP u32 add_ruby_frame(struct walk *w)
{
	u64 flags = 0;
	if (!w)
		return RUBY_END;
	struct ruby_walk *s = &w->languages.ruby;
	struct ruby_words *v = &w->script.ruby;
	struct ruby_frame *f = &v->frame;
	s->met = 0;
	if (!s->frame)
		return RUBY_END;
	if (s->frame >= s->end) {
		s->frame = 0;
		return RUBY_END;
	}
	if (READ_USER(f, sizeof(*f), s->frame) || !is_object(f->ep) || READ_USER(&flags, 8, f->ep))
		return ruby_broken(s);
	s->frame += RUBY_FRAME_BYTES;
	if ((flags & RUBY_MAGIC) == RUBY_MAGIC_DUMMY) { /* the bottom of a thread or fiber */
		s->frame = 0;
		return RUBY_END;
	}
	bool in_c = flags & RUBY_C;
	if (in_c && (flags & RUBY_MAGIC) != RUBY_MAGIC_C)
		return RUBY_MORE; /* a block written in C: its native frame says more */
	u64 iseq = in_c ? 0 : f->iseq;
	if (!ruby_find_method(v, f->ep) && !iseq)
		w->languages.cut = END_UNREADABLE; /* a method in C that nothing else tells of */
	if (iseq && iseq != s->iseq) {
		u64 body = 0;
		if (!is_object(iseq) || READ_USER(&body, 8, iseq + 16) || READ_USER(v->body, sizeof(v->body), body))
			return ruby_broken(s);
		s->iseq = iseq;
	}
	s->in_c = in_c;
	s->flags = flags;
	if (iseq || v->method.owner) {
		s->met = 1;
		s->what = ruby_identity(s, v);
		push_language_frame(w, LANGUAGE_RUBY, s->what, iseq ? ruby_line(v, f->pc) : 0);
	}
	return flags & RUBY_FINISH ? RUBY_END : RUBY_MORE;
}

/* Whether the native frame just walked is one of rb_vm_exec. */
static __always_inline bool ruby_executes(struct walk *w, struct ruby_process *p)
{
	return IN_CODE(w->languages.offset, p->execute);
}

/* Adds one of the Ruby methods that a native frame was running, if it is
 * rb_vm_exec, and tells whether there are more. */
STEP u32 add_ruby(struct walk *w)
{
	if (!w)
		return END_CORRUPT;
	struct ruby_walk *s = &w->languages.ruby;
	if (!w->languages.adding) {
		struct ruby_process *p = ruby_process_of(w->owner);
		if (!p || !ruby_executes(w, p))
			return 0;
		if (!(w->languages.begun & RUNS(LANGUAGE_RUBY))) {
			w->languages.begun |= RUNS(LANGUAGE_RUBY);
			ruby_begin(s, &w->script.ruby, p);
			if (w->languages.before == WALKED_WITH_FRAME_MISSING)
				return 0;
			if (w->languages.before == WALKED_WITH_FRAME_LEFT)
				s->frame += RUBY_FRAME_BYTES;
		}
		if (!s->frame && !s->broken) {
			if (walk_again(w, WALKED_WITH_FRAME_MISSING))
				return 0;
			ruby_broken(s);
		}
	}
	w->languages.adding = add_ruby_frame(w) == RUBY_MORE;
	ruby_photograph(w);
	return 0;
}

/* Reads the flags of the next frame. */
static __always_inline bool ruby_next_flags(struct ruby_walk *s, struct ruby_words *v, u64 *flags)
{
	return !READ_USER(&v->frame, sizeof(v->frame), s->frame) && !READ_USER(flags, 8, v->frame.ep);
}

/* Whether a walk that ended has seen all frames. Below those of the outermost
 * rb_vm_exec there may be some of C, and one that marks the bottom. The stack
 * of a fiber ends in a return address of zero: what resumed it is on another. */
STEP u32 end_ruby(struct walk *w, u32 end)
{
	if (!w)
		return END_CORRUPT;
	struct ruby_walk *s = &w->languages.ruby;
	if (!(w->languages.begun & RUNS(LANGUAGE_RUBY))) {
		struct ruby_process *p = ruby_process_of(w->owner);
		w->languages.begun |= RUNS(LANGUAGE_RUBY);
		if (p)
			ruby_begin(s, &w->script.ruby, p);
	}
	for (int i = 0; i < 8; i++) {
		if (s->broken)
			return end == END_COMPLETE ? END_UNSUPPORTED : end;
		if (!s->frame || s->frame >= s->end)
			return END_COMPLETE;
		u64 flags = 0;
		if (!ruby_next_flags(s, &w->script.ruby, &flags))
			return END_UNREADABLE;
		if ((flags & RUBY_MAGIC) == RUBY_MAGIC_DUMMY)
			return END_COMPLETE;
		if (!(flags & RUBY_C))
			break;
		add_ruby_frame(w);
		ruby_photograph(w);
	}
	return walk_again(w, WALKED_WITH_FRAME_LEFT) ? 0 : END_UNSUPPORTED;
}

#endif
