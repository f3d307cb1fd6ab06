/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a walk remembers of the languages on its stack; interpreted.h uses it. */
#ifndef ATYS_LANGUAGES_H
#define ATYS_LANGUAGES_H

#include "kernel.h"

/* Of Python, see python.h. */
struct python_walk {
	u64 frame; /* next to be added; 0: none */
	u64 entry; /* next entry record, or shim, where it is known */
	u64 shim;  /* met last */
	u64 code;  /* the code object met last: whose words are below, if its frame is the last */
	u64 known; /* its identity; 0: it has none */
	u64 what;  /* likewise, if it is to be photographed, else 0 */
	u64 state; /* whose frames these are */
	u64 outer; /* state that is left to read when these frames end; 0: none */
	u64 broken; /* what should be a frame is none */
};

/* What a walk of Python reads: a frame, then its code object. Not part of what
 * each walk begins with as zeros. */
struct python_words {
	u64 words[33];
	u64 frame, hash, count; /* what to go back to where the frames belong to a caller */
};

/* Of Java, see hotspot.h. */
#define HOTSPOT_HEAPS 4
#define HOTSPOT_HEAD 136	 /* bytes read of the beginning of a code blob */
#define HOTSPOT_TAIL 64		 /* and further on: they are put together */
#define HOTSPOT_BLOB_MASK 0xfful /* of places in both */
#define HOTSPOT_NMETHOD 0x00646f6874656d6eull	     /* "nmethod" */
#define HOTSPOT_NATIVE_NMETHOD 0x6e2065766974616eull /* "native nmethod" */
#define HOTSPOT_STUB_ROUTINES 0x74756f5262757453ull  /* "StubRoutines" */
#define HOTSPOT_CONTINUATION 0x61756e69746e6f63ull   /* "StubRoutines (continuation stubs)", from the 14th */
#define HOTSPOT_FLUSH_ICACHE 0x63695f6873756c66ull   /* "flush_icache_stub" */
#define HOTSPOT_ADAPTERS 0x204932432f433249ull	      /* "I2C/C2I adapters" */

struct hotspot_heap {
	u64 low, high;	/* reserved addresses of code */
	u64 segments;	/* its map: how far back a block begins */
	u32 shift;	/* log2 of a segment's size */
	u32 unused;
};

/* A JVM. What is said to be a place in the blob counts from the bytes read. */
struct hotspot_process {
	struct hotspot_heap heaps[HOTSPOT_HEAPS];
	u64 interpreter, interpreter_end;
	u64 barrier; /* where the oldest thawed frame returns to; 0: no virtual threads */
	u64 references; /* what compressed references count from */
	u64 chunk_class, class_mask; /* what the word at class_at shows of a StackChunk */
	u64 symbol_mask; /* of a symbol's first bytes that never change */
	u16 header; /* of a block, before the blob */
	u16 tail;   /* where in the blob the further bytes begin */
	/* places in the blob: */
	u16 name, size, code, frame_size, frame_complete, compile_id, orig_pc, deopt, deopt_mh;
	u8 code_relative;  /* to the blob; else an address */
	u8 complete_short; /* 16 bits; else 32 */
	u8 deopt_relative; /* as code_relative */
	u8 no_mirror;	   /* in frames of the interpreter: they hold a word less */
	/* offsets in a Method, its ConstMethod, ConstantPool and Klass: */
	u16 method_constant, constant_pool, constant_name, pool_holder, pool_slots, klass_name;
	/* in a Continuation and a StackChunk; chunk_words 0: they cannot be read: */
	u16 continuation_tail, class_at, chunk_parent, chunk_size, chunk_sp, chunk_bottom, chunk_words;
	u8 compressed; /* references are 4 bytes */
	u8 reference_shift;
	u16 pool_source, klass_source; /* where the number of the slot is that has the file's name; 0: not there */
	u16 unused2[3];
};

/* The frame of enterSpecial, in 21 to 25. Code of the JVM writes it, so no
 * table tells it; what does not look like it is none. */
struct continuation_entry {
	u64 unused, parent;
	u64 continuation;
	u64 chunk;
	u32 flags;     /* 1: of a virtual thread */
	u32 arguments; /* words of them, below, that the frame which returns to the barrier takes on the stack */
	u64 fast, monitors, pins;
	u64 bp, back;
};

struct hotspot_walk {
	struct hotspot_process process;
	u64 blob[33]; /* its head and tail; room for what the mask lets through */
	u64 start, end, code, name; /* of that blob */
	u64 method, constant, identity; /* of the interpreted function walked last */
	u8 around[24]; /* code around the pc */
	/* Of a virtual thread's stack, see stack_chunk.h: */
	u64 entry;	   /* its ContinuationEntry; 0: not found */
	u64 chunk, bottom; /* StackChunk that is walked, 0: none; where its frames end */
	u32 first;	   /* where among the frames the first of Java is */
	u8 calls;	   /* that one has called what is not Java: it may be freezing the stack */
	u8 opened;	   /* the chunk's first frame is next */
	struct continuation_entry read; /* last */
};

/* Of V8, see v8.h: maps that are of functions, and of what they share. */
struct v8_walk {
	u64 function_map, shared_map;
};

/* The frame of V8 at hand. Not cleared. */
struct v8_frame {
	u64 shared;		  /* of the function; 0: there is none */
	u64 name, script, what;	  /* of it */
	u64 pc;			  /* of its compiled code; or 0 */
	u64 words[6];		  /* read last: of a frame, a scope or code */
	u64 fp, function, returns_at, bp, sp; /* of a frame that is made or left: see v8_leaf */
	u64 unread;		  /* the function could not be read: it may be one */
};

/* Of PHP, see php.h. */
struct php_walk {
	u64 frame;     /* next to be added; 0: none */
	u64 innermost; /* the first of all */
	u64 function;  /* of the last frame */
	u64 what;      /* its identity */
	u8 user;       /* it is written in PHP */
	u8 named;      /* it has a name */
	u8 met;	       /* it is not that of the frame before */
	u8 resumed;    /* frames are of those that resumed a fiber */
	u32 broken;    /* what should be a frame is none */
	u32 compiled;  /* the thread is in compiled code, which seldom says where */
};

/* Of Ruby, see ruby.h. */
struct ruby_method {
	u64 flags, class, definition, id, owner; /* rb_method_entry_t */
};

struct ruby_walk {
	u64 frame, end; /* next to be added, 0: none; end of all */
	u64 iseq;	/* of the last frame that has one */
	u64 flags;	/* of the frame at hand */
	u32 in_c, met;	/* it is written in C; it was added */
	u64 what;	     /* its identity */
	u64 broken;	     /* what should be a frame is none */
};

/* Of Perl, see perl.h. */
struct perl_walk {
	u64 interpreter, position; /* PL_curcop of the next frame */
	u64 info, previous; /* stack info at hand, 0: none; the one below it */
	u64 contexts, left; /* its contexts, and how many are to be looked at */
	u64 subs; /* how many have a sub that is set up */
	u64 what, stash, name, file; /* of the frame at hand */
	u32 start_line, kind, named;
	u32 met;    /* it was added */
	u32 ended;  /* the run's last sub was met */
	u32 skips;  /* the first run has not begun */
	u32 broken; /* what should be a context is none */
};

/* Of .NET, see dotnet.h: code it reads. Not cleared. */
#define DOTNET_BEFORE_MASK 127
#define DOTNET_CODE_MASK 63
struct dotnet_walk {
	u64 before[DOTNET_BEFORE_MASK + 1]; /* the pc */
	u8 code[DOTNET_CODE_MASK + 1 + 4];
	u32 at;	   /* in it */
	u32 words; /* between rsp and the return address */
	u32 bp;	   /* where among them the caller's rbp is, from 1; 0: it is in rbp */
};

/* struct _zend_execute_data, up to prev_execute_data. */
struct php_frame {
	u64 opline, call, value, function, this;
	u32 info, arguments;
	u64 previous;
};

/* The beginning of zend_function, and what else is read of a zend_op_array. */
struct php_function {
	u8 type, flags[7];
	u64 name, scope; /* zend_string, zend_class_entry */
};

/* rb_control_frame_t, up to ep. */
struct ruby_frame {
	u64 pc, sp, iseq, self, ep;
};

/* The words of a table that holds a few variables, of a class: it is searched
 * from its beginning, where the names of classes are. */
struct ruby_table {
	u64 unused[4], first, bound, entries;
};

/* struct stackinfo, from its second word on */
struct perl_stack_info {
	u64 contexts, previous, next;
	s32 last, most;
	s32 last_sub; /* or eval; one above it is still being set up */
	s32 type;
};

/* A COP (position) from its type on. */
struct perl_position {
	u16 type, unused;
	u32 line;
	u64 stash, file;
	u32 hints, sequence; /* counts what was ever compiled */
};

/* The body of a sub (XPVCV), from its stash on. */
struct perl_sub {
	u64 stash, start, root, name, file, pad, outside;
	u32 outside_sequence, flags;
};

/* What is read of one frame, and must not take room on the stack. Not cleared. */
struct php_words {
	struct php_frame frame;
	struct php_function function;
	u64 class, file[2]; /* names; lines */
	u64 head[2], ends[4]; /* of a string */
};

struct ruby_words {
	struct ruby_frame frame;
	u64 object[5];
	u64 body[19]; /* of the last iseq */
	struct ruby_method method; /* that the frame belongs to */
	struct ruby_table table;
};

struct perl_words {
	u64 context[13];
	struct perl_stack_info info;
	struct perl_sub sub;
	struct perl_position start, position;
};

union script_words {
	struct php_words php;
	struct ruby_words ruby;
	struct perl_words perl;
};

/* Why a walk is done again; see walk_again. */
enum walked_before {
	WALKED_NEVER,
	WALKED_WITH_FRAME_LEFT,
	WALKED_WITH_FRAME_MISSING,
};

struct languages {
	u64 ip;			   /* of the innermost frame */
	enum walked_before before; /* this walk */
	/* Of the frame of a file that was walked last: */
	u32 runs;   /* RUNS of the languages whose runtime it belongs to */
	u32 begun;  /* RUNS of the languages whose state below is read already */
	u32 adding; /* the last of runs is not done: it has more functions to be added */
	u64 offset; /* of its pc, in the file */
	u64 sp;	    /* its lowest word; its words end at walk.sp */
	u64 bp;	    /* rbp in it */
	/* Of memory without a file that holds the pc: */
	u64 code, code_end;
	u64 code_flags; /* of the mapping */
	u32 cut; /* frames are missing in the middle of the stack: END_ why; else 0 */
	u32 unused;
	struct python_walk python;
	struct v8_walk v8;
	struct php_walk php;
	struct ruby_walk ruby;
	struct perl_walk perl;
};

#endif
