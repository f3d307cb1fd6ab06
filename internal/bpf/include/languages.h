/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a walk remembers of the languages on its stack; interpreted.h uses it. */
#ifndef ATYS_LANGUAGES_H
#define ATYS_LANGUAGES_H

/* Of Python, see python.h. */
struct python_walk {
	u64 frame; /* next to be added; 0: none */
	u64 entry; /* next entry record, or shim, where it is known */
	u64 shim;  /* met last */
	u64 code;  /* whose words are below */
	u64 outer; /* state that is left to read when these frames end; 0: none */
	u64 broken; /* what should be a frame is none */
	u64 words[33]; /* of a frame, then of its code object */
};

/* Of Java, see hotspot.h. */
#define HOTSPOT_HEAPS 4
#define HOTSPOT_HEAD 136	 /* bytes read of the beginning of a code blob */
#define HOTSPOT_TAIL 48		 /* and further on: they are put together */
#define HOTSPOT_BLOB_MASK 0xfful /* of places in both */
#define HOTSPOT_NMETHOD 0x00646f6874656d6eull	     /* "nmethod" */
#define HOTSPOT_NATIVE_NMETHOD 0x6e2065766974616eull /* "native nmethod" */
#define HOTSPOT_STUB_ROUTINES 0x74756f5262757453ull  /* "StubRoutines" */
#define HOTSPOT_CONTINUATION 0x61756e69746e6f63ull   /* "StubRoutines (continuation stubs)", from the 14th */
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
	u64 thawed;  /* address of where it would return were the older ones there */
	u64 symbol_mask; /* of a symbol's first bytes that never change */
	u16 header; /* of a block, before the blob */
	u16 tail;   /* where in the blob the further bytes begin */
	/* places in the blob: */
	u16 name, size, code, frame_size, frame_complete, compile_id, orig_pc, deopt, deopt_mh;
	u8 code_relative;  /* to the blob; else an address */
	u8 complete_short; /* 16 bits; else 32 */
	u8 deopt_relative; /* as code_relative */
	u8 unused;
	/* offsets in a Method, its ConstMethod, ConstantPool and Klass: */
	u16 method_constant, constant_pool, constant_name, pool_holder, pool_slots, klass_name;
	u16 unused2;
};

struct hotspot_walk {
	struct hotspot_process process;
	u64 blob[33]; /* its head and tail; room for what the mask lets through */
	u64 start, end, code, name; /* of that blob */
	u64 method, constant, identity; /* of the interpreted function walked last */
	u8 around[24]; /* code around the pc */
};

/* Of V8, see v8.h. */
struct v8_walk {
	u64 function_map, shared_map;	  /* maps that are of functions, and of what they share */
	u64 shared, name, script, what; /* of the function at hand */
};

/* Of PHP, see php.h. */
struct php_walk {
	u64 frame;     /* next to be added; 0: none */
	u64 innermost; /* the first of all */
	u64 function;  /* of the last frame */
	u64 what;      /* its identity */
	u8 user;       /* it is written in PHP */
	u8 named;      /* it has a name */
	u32 broken;    /* what should be a frame is none */
};

/* Of Ruby, see ruby.h. */
struct ruby_method {
	u64 flags, class, definition, id, owner; /* rb_method_entry_t */
};

struct ruby_walk {
	u64 frame, end; /* next to be added, 0: none; end of all */
	u64 ep, iseq, flags; /* of the frame at hand; iseq 0: written in C */
	u64 what;	     /* its identity */
	struct ruby_method method; /* that it belongs to */
	u64 body[19];	     /* of the last iseq */
	u64 broken;	     /* what should be a frame is none */
};

/* Of Perl, see perl.h. */
struct perl_walk {
	u64 interpreter, position; /* PL_curcop of the next frame */
	u64 info, previous; /* stack info at hand, 0: none; the one below it */
	u64 contexts, left; /* its contexts, and how many are to be looked at */
	u64 subs; /* how many have a sub that is set up */
	u64 context[13];
	u64 what, stash, name, file; /* of the frame at hand */
	u32 start_line, kind, named;
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
	u64 offset; /* of its pc, in the file */
	u64 sp;	    /* its lowest word; its words end at walk.sp */
	u64 bp;	    /* rbp in it */
	/* Of memory without a file that holds the pc: */
	u64 code, code_end;
	u64 code_flags; /* of the mapping */
	u32 cut; /* frames are missing in the middle of the stack */
	u32 unused;
	struct python_walk python;
	struct v8_walk v8;
	struct php_walk php;
	struct ruby_walk ruby;
	struct perl_walk perl;
};

#endif
